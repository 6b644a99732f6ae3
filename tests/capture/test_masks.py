"""Masks that models make mean to `watch` what they mean to the kernel that gets them."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

from regard.capture import masks
from regard.capture.masks import Masks, ParsedMask, Sizes, Spans
from regard.patterns import Pattern, causal, documents, everyone, padding, window
from regard.positions import Bias
from tests.capture.masking import HEADS, added, assert_allows, scattered
from tests.strategies import SEEDS, document_ids

pytestmark = pytest.mark.usefixtures("one_thread")


class Recipe(NamedTuple):
    """What a mask is made of: any of order, a window, padding and documents, or none of them.

    Queries stand anywhere among the keys: behind them there may be a cache's room.
    """

    sizes: Sizes
    first_query: int
    looks_back: bool
    reach: tuple[int, int] | None
    starts: list[int] | None
    stops: list[int] | None
    ids: Tensor | None

    def pattern(self) -> Pattern:
        found = everyone()
        if self.looks_back:
            found = found & causal()
        if self.reach is not None:
            found = found & window(*self.reach)
        if self.starts is not None and self.stops is not None:
            start, stop = torch.tensor(self.starts), torch.tensor(self.stops)
            found = found & padding((stop - start).clamp(min=0), starts=start)
        if self.ids is not None:
            found = found & documents(self.ids)
        return found

    def allowed(self) -> Tensor:
        """Write down who may look at whom, [batch or 1, queries, keys]."""
        queries = torch.arange(self.first_query, self.first_query + self.sizes.queries)
        mask = self.pattern().allows(queries, torch.arange(self.sizes.keys))
        return mask.reshape(-1, self.sizes.queries, self.sizes.keys)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    batch, num_keys = draw(st.integers(1, 4)), draw(st.integers(1, 13))
    num_queries = draw(st.integers(1, num_keys))
    reach = st.integers(0, num_keys)
    places = st.lists(st.integers(0, num_keys), min_size=batch, max_size=batch)
    none, last = st.just([0] * batch), st.just([num_keys] * batch)
    side = draw(st.sampled_from(["none", "left", "right", "both"]))
    ids = st.lists(document_ids(num_keys), min_size=batch, max_size=batch).map(torch.stack)
    return Recipe(
        Sizes(batch, HEADS, num_queries, num_keys),
        draw(st.integers(0, num_keys - num_queries)),
        draw(st.booleans()),
        draw(st.one_of(st.none(), st.tuples(reach, st.just(0)), st.tuples(reach, reach))),
        None if side == "none" else draw(none if side == "right" else places),
        None if side == "none" else draw(last if side == "left" else places),
        draw(st.one_of(st.none(), document_ids(num_keys), ids)),
    )


def longer(mask: Tensor, sizes: Sizes) -> Tensor:
    """Return a mask with columns for keys that are not there."""
    return torch.cat([mask, ~mask[..., :2]], dim=-1)


FORMS: dict[str, Callable[[Tensor, Sizes], Tensor]] = {
    "bool": lambda mask, sizes: mask,
    "-inf": lambda mask, sizes: added(mask, -torch.inf),
    "lowest": lambda mask, sizes: added(mask, torch.finfo(torch.float32).min),
    "lowest of bfloat16": lambda mask, sizes: added(
        mask, torch.finfo(torch.bfloat16).min, torch.bfloat16
    ),
    "lowest of float16": lambda mask, sizes: added(
        mask, torch.finfo(torch.float16).min, torch.float16
    ),
    "-1e9": lambda mask, sizes: added(mask, -1e9),
    "-10000": lambda mask, sizes: added(mask, -10000.0),
    "expanded over heads": lambda mask, sizes: mask.expand(-1, sizes.heads, -1, -1),
    "expanded over all": lambda mask, sizes: mask.expand(sizes.batch, sizes.heads, -1, -1),
    "repeated over heads": lambda mask, sizes: mask.repeat(1, sizes.heads, 1, 1),
    "repeated over all": lambda mask, sizes: added(mask, -torch.inf).repeat(
        sizes.batch // len(mask), sizes.heads, 1, 1
    ),
    "more columns": longer,
    "transposed in memory": lambda mask, sizes: mask.mT.contiguous().mT,
}
"""How a mask [batch or 1, 1, queries, keys] may be handed over."""


def read(mask: Tensor, sizes: Sizes, *, cross: bool = False) -> ParsedMask:
    return Masks().read(mask, sizes, cross=cross)


def numbers_added(bias: Bias, sizes: Sizes, first_query: int) -> Tensor:
    """Return what a bias adds to each score, [batch, heads, queries, keys]."""
    shape = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    where = torch.meshgrid(*(torch.arange(size) for size in shape), indexing="ij")
    zeros = torch.zeros(shape, dtype=torch.float64)
    return bias.adjust(zeros, where[0], where[1], where[2] + first_query, where[3])


@pytest.mark.parametrize("form", FORMS)
@given(recipes())
def test_the_same_pairs_are_allowed(form: str, recipe: Recipe) -> None:
    allowed, sizes = recipe.allowed(), recipe.sizes
    assert_allows(read(FORMS[form](allowed[:, None], sizes), sizes), allowed, sizes)


@pytest.mark.parametrize("cross", [False, True])
@given(recipes())
def test_a_mask_of_two_axes_serves_all_sequences(cross: bool, recipe: Recipe) -> None:
    allowed, sizes = recipe.allowed(), recipe.sizes
    assert_allows(read(allowed[0], sizes, cross=cross), allowed[:1], sizes)


@pytest.mark.parametrize("cross", [False, True])
@given(recipes(), st.booleans())
def test_a_mask_of_one_row_serves_all_queries(cross: bool, recipe: Recipe, additive: bool) -> None:
    allowed, sizes = recipe.allowed(), recipe.sizes
    row = allowed[:, :1]
    mask = added(row, -torch.inf) if additive else row
    assert_allows(read(mask[:, None], sizes, cross=cross), row, sizes)


@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.integers(1, 6))
def test_any_mask_is_understood(seed: int, batch: int, num_queries: int, num_keys: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    allowed = torch.rand(batch, num_queries, num_keys, generator=chance) < 0.6
    sizes = Sizes(batch, HEADS, num_queries, num_keys)
    assert_allows(read(allowed[:, None], sizes), allowed, sizes)


@given(SEEDS, st.integers(1, 3), st.integers(1, 6), st.integers(1, 7))
def test_spans_are_the_ends_of_rows(seed: int, batch: int, num_queries: int, num_keys: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    rows = torch.rand(batch, num_queries, num_keys, generator=chance) < 0.7
    found = Spans.of(rows)
    places = [[row.nonzero().flatten().tolist() for row in mask] for mask in rows]
    flat = [keys for mask in places for keys in mask]
    if any(keys != list(range(keys[0], keys[-1] + 1)) for keys in flat if keys):
        assert found is None
        return
    assert found is not None
    assert found.first.tolist() == [[ks[0] if ks else num_keys for ks in mask] for mask in places]
    assert found.last.tolist() == [[ks[-1] if ks else -1 for ks in mask] for mask in places]


def test_masks_read_in_parts_have_the_same_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (causal() & window(before=4) & padding([17, 11])).allows(range(17), range(17))
    whole = Spans.of(rows)
    monkeypatch.setattr(masks, "_CHUNK", 3 * 2 * 17)
    parts = Spans.of(rows)
    assert whole is not None
    assert parts is not None
    assert torch.equal(whole.first, parts.first)
    assert torch.equal(whole.last, parts.last)


LENGTHS = [3, 7, 5]
STARTS = [4, 0, 2]
IDS = [0, 0, 0, 1, 2, 2, 2]
OTHER_IDS = [0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("form", ["bool", "-inf", "lowest", "expanded over all"])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (everyone(), "everyone()"),
        (causal(), "causal()"),
        (window(before=2), "causal() & window(before=2)"),
        (window(before=2, after=1), "window(before=2, after=1)"),
        (window(before=0, after=3), "window(before=0, after=3)"),
        (padding(LENGTHS), "padding([3, 7, 5])"),
        (padding(starts=STARTS), "padding([3, 7, 5], starts=[4, 0, 2])"),
        (causal() & padding(LENGTHS), "causal() & padding([3, 7, 5])"),
        (
            causal() & padding(starts=STARTS),
            "causal() & padding([3, 7, 5], starts=[4, 0, 2])",
        ),
        (
            causal() & window(before=2) & padding(LENGTHS),
            "causal() & window(before=2) & padding([3, 7, 5])",
        ),
        (
            window(before=1, after=2) & padding(LENGTHS),
            "window(before=1, after=2) & padding([3, 7, 5])",
        ),
        (documents(IDS), "documents(7 ids)"),
        (causal() & documents(IDS), "causal() & documents(7 ids)"),
        (documents([IDS, OTHER_IDS, IDS]), "documents(3 × 7 ids)"),
        (
            causal() & documents([IDS, OTHER_IDS, IDS]),
            "causal() & documents(3 × 7 ids)",
        ),
    ],
    ids=str,
)
def test_masks_are_recognised(pattern: Pattern, expected: str, form: str) -> None:
    sizes = Sizes(3, HEADS, 7, 7)
    allowed = pattern.allows(range(7), range(7)).reshape(-1, 1, 7, 7)
    assert repr(read(FORMS[form](allowed, sizes), sizes).pattern) == expected


@pytest.mark.parametrize("first_query", [0, 2, 6])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (causal(), "causal()"),
        (causal() & window(before=1), "causal() & window(before=1)"),
    ],
    ids=str,
)
def test_queries_stand_where_the_mask_says(
    pattern: Pattern, expected: str, first_query: int
) -> None:
    """As with a static cache, which has room behind the tokens that came so far."""
    sizes = Sizes(1, HEADS, 3, 9)
    parsed = read(pattern.allows(range(first_query, first_query + 3), range(9)), sizes)
    assert repr(parsed.pattern) == expected
    assert parsed.first_query == first_query


@pytest.mark.parametrize(
    ("pattern", "expected", "first_query"),
    [
        (padding([3, 4]), "padding([3, 4])", 8),
        (padding([4, 4]), "causal()", 3),
        (padding([3, 9]), "padding([3, 9])", 8),
    ],
    ids=str,
)
def test_one_query_with_room_behind_it(pattern: Pattern, expected: str, first_query: int) -> None:
    """It stands where its keys end, if they all end there; else nothing says where."""
    sizes = Sizes(2, HEADS, 1, 9)
    parsed = read(pattern.allows(range(8, 9), range(9)).reshape(2, 1, 1, 9), sizes)
    assert repr(parsed.pattern) == expected
    assert parsed.first_query == first_query


def test_no_mask_lets_everyone_look() -> None:
    parsed = Masks().read(None, Sizes(2, HEADS, 3, 7), cross=False)
    assert repr(parsed.pattern) == "everyone()"
    assert parsed.bias is None
    assert parsed.first_query == 4


def slopes(*, forbid: bool, batch: int = 1) -> Tensor:
    """Return numbers as ALiBi adds them, [batch, HEADS, 5, 7], some of them −inf if forbidden."""
    slope = torch.tensor([0.5, 0.25, 0.125])[:, None, None]
    distance = (torch.arange(2, 7)[:, None] - torch.arange(7)).double()
    numbers = (-slope * distance.abs()).masked_fill((distance < 0) & forbid, -torch.inf)
    return numbers.expand(batch, -1, -1, -1) * torch.arange(1, batch + 1)[:, None, None, None]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "numbers",
    [
        slopes(forbid=False),
        slopes(forbid=True),
        slopes(forbid=True, batch=2),
        slopes(forbid=False)[:, :1],
        slopes(forbid=True)[:, :, :1],
        slopes(forbid=False)[0],
        slopes(forbid=True)[0, 0],
    ],
    ids=["heads", "forbidden", "batch", "one head", "one row", "three axes", "two axes"],
)
def test_numbers_are_added_as_they_are(numbers: Tensor, dtype: torch.dtype) -> None:
    sizes = Sizes(2, HEADS, 5, 7)
    mask = numbers.to(dtype)
    parsed = read(mask, sizes)
    assert parsed.bias is not None
    expected = mask.double().expand(sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    assert torch.equal(numbers_added(parsed.bias, sizes, parsed.first_query), expected)
    assert_allows(replace(parsed, bias=None), (expected > -torch.inf)[:, 0], sizes)


def test_heads_that_differ_are_numbers() -> None:
    sizes = Sizes(2, HEADS, 5, 7)
    mask = scattered(4, 2, HEADS, 5, 7)
    parsed = read(mask, sizes)
    assert parsed.bias is not None
    assert repr(parsed.pattern) == "everyone()"
    expected = added(mask, -torch.inf, torch.float64)
    assert torch.equal(numbers_added(parsed.bias, sizes, parsed.first_query), expected)


def test_no_order_is_read_into_the_padding_of_another_sequence() -> None:
    sizes = Sizes(2, HEADS, 1, 9)
    mask = pad(torch.ones(2, 1, 1, 5, dtype=torch.bool), (0, 4))
    own = read(mask, sizes)
    # Of its own sequence, the query is the fifth token, and the others are to come.
    assert own.first_query == 4
    other = read(mask, sizes, cross=True)
    assert repr(other.pattern) == "padding([5, 5])"
    for parsed in (own, other):
        assert_allows(parsed, mask[:, 0], sizes)


def test_no_order_is_read_into_a_triangle_over_another_sequence() -> None:
    sizes = Sizes(1, HEADS, 5, 5)
    allowed = causal().allows(range(5), range(5))
    parsed = read(allowed, sizes, cross=True)
    assert "causal" not in repr(parsed.pattern)
    assert_allows(parsed, allowed[None], sizes)
