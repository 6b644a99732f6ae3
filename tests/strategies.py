"""Hypothesis strategies that the tests of several folders share."""

import random
from collections.abc import Callable

import torch
from hypothesis import settings
from hypothesis import strategies as st

from regard.patterns import (
    Pattern,
    causal,
    columns,
    documents,
    everyone,
    from_mask,
    global_at,
    neighbours,
    padding,
    pairs,
    prefix,
    strided,
    window,
)

fewer = settings(max_examples=max(1, settings.default.max_examples // 3))
"""For laws whose examples are one for several checks, or take long: a third of what others try."""

SEEDS = st.integers(0, 2**16)
"""What is large is drawn by its seed: hypothesis has only so much room for an example."""


@st.composite
def patterns(
    draw: st.DrawFn,
    num_positions: int,
    batch: int | None = None,
    *,
    anywhere: bool = False,
    depth: int = 3,
) -> Pattern:
    """Draw a pattern for keys at 0 … num_positions − 1 and queries among the same positions.

    Args:
        draw: given by hypothesis.
        num_positions: the number of keys.
        batch: the size of the batch axis, which some of the patterns then have; None for no axis.
        anywhere: whether queries may stand outside of the keys too, which leaves out the patterns
            that know nothing of such queries.
        depth: how often patterns are combined, at most.
    """
    joint = draw(st.sampled_from(["leaf", "&", "|", "~"])) if depth else "leaf"
    if joint == "leaf":
        return draw(leaves(num_positions, batch, anywhere=anywhere))
    inner = patterns(num_positions, batch, anywhere=anywhere, depth=depth - 1)
    if joint == "~":
        return ~draw(inner)
    first, second = draw(inner), draw(inner)
    return first & second if joint == "&" else first | second


@st.composite
def leaves(
    draw: st.DrawFn, num_positions: int, batch: int | None = None, *, anywhere: bool = False
) -> Pattern:
    """Draw a pattern that isn't combined of others; arguments as for `patterns`."""
    counts = st.integers(0, num_positions + 2)
    steps = st.one_of(st.integers(1, 7), st.integers(1, num_positions + 2))
    some_positions = st.lists(st.integers(0, num_positions - 1), min_size=1, max_size=5)
    kinds: list[tuple[Callable[..., Pattern], tuple[st.SearchStrategy[object], ...]]] = [
        (everyone, ()),
        (causal, ()),
        (window, (counts, counts)),
        (window, (st.integers(0, 9),)),
        (strided, (steps,)),
        (columns, (steps,)),
        (prefix, (counts,)),
        (global_at, (some_positions,)),
        (neighbours, (edges(num_positions),)),
        (_pairs, (_sides(num_positions), _sides(num_positions))),
    ]
    if not anywhere:
        kinds += [
            (documents, (document_ids(num_positions),)),
            (from_mask, (masks(num_positions),)),
        ]
    if batch is not None:
        lengths = st.lists(st.integers(0, num_positions), min_size=batch, max_size=batch)
        kinds += [
            (padding, (lengths,)),
            (_padding_on_the_left, (lengths,)),
            (_padding_on_both_sides, (_stacked(_inner(num_positions), batch),)),
        ]
    if batch is not None and not anywhere:
        kinds += [
            (documents, (_stacked(document_ids(num_positions), batch),)),
            (from_mask, (_stacked(masks(num_positions), batch),)),
        ]
    build, arguments = draw(st.sampled_from(kinds))
    return _undisturbed(build, *(draw(argument) for argument in arguments))


@st.composite
def document_ids(draw: st.DrawFn, num_positions: int) -> torch.Tensor:
    """Draw the document of each position: ascending, in runs that come back, or shuffled."""
    num_documents = draw(st.integers(1, 8))
    order = draw(st.sampled_from(["sorted", "runs", "shuffled"]))
    chance = torch.Generator().manual_seed(draw(SEEDS))
    ids = torch.randint(-2, num_documents - 2, (num_positions,), generator=chance)
    if order == "shuffled":
        return ids
    ids = ids.sort().values
    return ids if order == "sorted" else torch.cat([ids[::2], ids[1::2]])


@st.composite
def masks(draw: st.DrawFn, num_positions: int) -> torch.Tensor:
    """Draw a mask [num_positions, num_positions] of any density, in patches of any size."""
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    patch = draw(st.integers(1, 40))
    chance = torch.Generator().manual_seed(draw(SEEDS))
    num_patches = -(-num_positions // patch)
    rough = torch.rand(num_patches, num_patches, generator=chance) < density
    fine = rough.repeat_interleave(patch, 0).repeat_interleave(patch, 1)
    return fine[:num_positions, :num_positions]


@st.composite
def edges(draw: st.DrawFn, num_positions: int) -> torch.Tensor:
    """Draw the edges of a graph: some anywhere, and maybe all edges of a small rectangle."""
    position = st.integers(0, num_positions - 1)
    found = draw(st.lists(st.tuples(position, position), min_size=1, max_size=12))
    height, width = draw(st.integers(0, 4)), draw(st.integers(1, 40))
    first_query, first_key = draw(position), draw(position)
    found += [
        (i, j)
        for i in range(first_query, min(first_query + height, num_positions))
        for j in range(first_key, min(first_key + width, num_positions))
    ]
    return torch.tensor(found)


@st.composite
def query_positions(draw: st.DrawFn, num_keys: int, *, anywhere: bool = False) -> torch.Tensor:
    """Draw where the queries stand: one after the other, at equal distance, or in any order.

    Args:
        draw: given by hypothesis.
        num_keys: the number of keys.
        anywhere: whether they may stand outside of the keys too.
    """
    low, high = (-10, num_keys + 9) if anywhere else (0, num_keys - 1)
    order = draw(st.sampled_from(["consecutive", "spread", "shuffled", "scattered", "sorted"]))
    if order in ("scattered", "sorted"):
        scattered = draw(st.lists(st.integers(low, high), min_size=1, max_size=80))
        return torch.tensor(sorted(scattered) if order == "sorted" else scattered)
    first, last = sorted([draw(st.integers(low, high)), draw(st.integers(low, high))])
    if order == "spread":
        return torch.arange(first, last + 1, draw(st.integers(1, 5)))
    positions = torch.arange(first, last + 1)
    if order == "consecutive":
        return positions
    chance = torch.Generator().manual_seed(draw(SEEDS))
    return positions[torch.randperm(len(positions), generator=chance)]


def _pairs(queries: object, keys: object) -> Pattern:
    return pairs(queries=queries, keys=keys)


def _sides(num_positions: int) -> st.SearchStrategy[object]:
    """Draw some positions: a span, with an end or without one, or a list."""
    ends = st.tuples(st.integers(0, num_positions + 2), st.integers(0, num_positions + 2))
    return st.one_of(
        ends.map(lambda two: range(*two)),
        st.integers(0, num_positions).map(lambda start: slice(start, None)),
        st.lists(st.integers(0, num_positions - 1), max_size=12),
    )


def _padding_on_the_left(starts: list[int]) -> Pattern:
    return padding(starts=starts)


def _padding_on_both_sides(inner: torch.Tensor) -> Pattern:
    return padding(inner[:, 1], starts=inner[:, 0])


def _inner(num_positions: int) -> st.SearchStrategy[torch.Tensor]:
    """Draw the start and the length of a sequence somewhere among the positions."""
    ends = st.tuples(st.integers(0, num_positions), st.integers(0, num_positions)).map(sorted)
    return ends.map(lambda two: torch.tensor([two[0], two[1] - two[0]]))


def _stacked(
    tensors: st.SearchStrategy[torch.Tensor], batch: int
) -> st.SearchStrategy[torch.Tensor]:
    return st.lists(tensors, min_size=batch, max_size=batch).map(torch.stack)


def _undisturbed(build: Callable[..., Pattern], *arguments: object) -> Pattern:
    # Of a list, beartype checks one item that it chooses with `random`; hypothesis does not accept
    # that anybody else draws from it.
    state = random.getstate()
    try:
        return build(*arguments)
    finally:
        random.setstate(state)
