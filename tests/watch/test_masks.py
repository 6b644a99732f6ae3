"""Masks that models make mean to `watch` what they mean to the kernel that gets them."""

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

import regard
from regard.patterns import Pattern, causal, columns, documents, everyone, padding, window
from regard.positions import Bias
from regard.watch import spans
from regard.watch.masks import Masks, Meaning, Sizes
from regard.watch.spans import Spans
from tests.strategies import SEEDS, document_ids

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS = 3
LONG = 4096


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


def added(allowed: Tensor, lowest: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, lowest)


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


def read(mask: Tensor, sizes: Sizes, *, cross: bool = False) -> Meaning:
    return Masks().read(mask, sizes, cross=cross)


def assert_allows(meaning: Meaning, allowed: Tensor, sizes: Sizes) -> None:
    """Assert that a meaning is a pattern, and that it allows these pairs, [batch or 1, q, k]."""
    assert meaning.bias is None
    queries = torch.arange(meaning.first_query, meaning.first_query + sizes.queries)
    found = meaning.pattern.allows(queries, torch.arange(sizes.keys))
    shape = (sizes.batch, sizes.queries, sizes.keys)
    assert torch.equal(found.expand(shape), allowed.expand(shape)), meaning.pattern


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


def test_masks_that_are_looked_at_in_parts_have_the_same_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (causal() & window(before=4) & padding([17, 11])).allows(range(17), range(17))
    whole = Spans.of(rows)
    monkeypatch.setattr(spans, "_CHUNK", 3 * 2 * 17)
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
    meaning = read(pattern.allows(range(first_query, first_query + 3), range(9)), sizes)
    assert repr(meaning.pattern) == expected
    assert meaning.first_query == first_query


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
    meaning = read(pattern.allows(range(8, 9), range(9)).reshape(2, 1, 1, 9), sizes)
    assert repr(meaning.pattern) == expected
    assert meaning.first_query == first_query


def test_no_mask_lets_everyone_look() -> None:
    meaning = Masks().read(None, Sizes(2, HEADS, 3, 7), cross=False)
    assert repr(meaning.pattern) == "everyone()"
    assert meaning.bias is None
    assert meaning.first_query == 4


def scattered(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


def other_memory(mask: Tensor) -> Tensor:
    copy = mask.clone()
    assert copy.data_ptr() != mask.data_ptr()
    return copy


@pytest.mark.parametrize(
    "mask",
    [
        scattered(0, 1, 1, 6, 9),
        scattered(1, 2, 1, 6, 9),
        scattered(2, 2, HEADS, 6, 9),
        columns(every=3).allows(range(3, 9), range(9))[None, None],
        torch.linspace(-2, 2, 54).view(1, 1, 6, 9),
        added(scattered(3, 1, 1, 6, 9), -torch.inf),
    ],
    ids=["any", "each sequence", "each head", "columns", "numbers", "additive"],
)
def test_what_has_no_name_is_kept_once(mask: Tensor) -> None:
    sizes, masks = Sizes(2, HEADS, 6, 9), Masks()
    first = masks.read(mask, sizes, cross=False)
    assert masks.read(other_memory(mask), sizes, cross=False) is first
    masks.forget()
    assert masks.read(other_memory(mask), sizes, cross=False) is first
    other = other_memory(mask)
    other[..., 2, 3] = 1.5 if mask.is_floating_point() else ~other[..., 2, 3]
    assert masks.read(other, sizes, cross=False) is not first


def test_what_has_no_name_is_not_confused() -> None:
    sizes, masks = Sizes(2, HEADS, 6, 9), Masks()
    several = [scattered(seed, 2, 1, 6, 9) for seed in range(7)]
    for mask in (*several, *map(other_memory, several)):
        assert_allows(masks.read(mask, sizes, cross=False), mask[:, 0], sizes)


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
    meaning = read(mask, sizes)
    assert meaning.bias is not None
    assert repr(meaning.pattern) == "everyone()"
    expected = mask.double().expand(sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    assert torch.equal(numbers_added(meaning.bias, sizes, meaning.first_query), expected)


def test_heads_that_differ_are_numbers() -> None:
    sizes = Sizes(2, HEADS, 5, 7)
    mask = scattered(4, 2, HEADS, 5, 7)
    meaning = read(mask, sizes)
    assert meaning.bias is not None
    assert repr(meaning.pattern) == "everyone()"
    expected = added(mask, -torch.inf, torch.float64)
    assert torch.equal(numbers_added(meaning.bias, sizes, meaning.first_query), expected)


def test_causal_masks_are_not_kept() -> None:
    sizes, masks = Sizes(1, HEADS, LONG, LONG), Masks()
    memory: list[weakref.ref[np.ndarray]] = []
    meanings: list[Meaning] = []
    for _ in range(10):
        # An array lives for as long as a tensor has its memory.
        array = np.tri(LONG, dtype=bool)
        memory.append(weakref.ref(array))
        meanings.append(masks.read(torch.from_numpy(array)[None, None], sizes, cross=False))
        del array
    # Some are, so that the next layer's mask is known again.
    assert 0 < sum(one() is not None for one in memory) < 5
    masks.forget()
    assert all(one() is None for one in memory)
    assert all(meaning.pattern == causal() for meaning in meanings)
    assert all(meaning.bias is None for meaning in meanings)


def test_of_equal_masks_one_is_kept() -> None:
    sizes, masks = Sizes(1, HEADS, 64, 64), Masks()
    memory: list[weakref.ref[np.ndarray]] = []
    for _ in range(10):
        array = scattered(5, 1, 1, 64, 64).numpy().copy()
        memory.append(weakref.ref(array))
        masks.read(torch.from_numpy(array), sizes, cross=False)
        del array
    masks.forget()
    assert sum(one() is not None for one in memory) <= 1


@pytest.mark.parametrize("mode", ["grad", "inference"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (causal().allows(range(6), range(6)), window(before=2).allows(range(6), range(6))),
        (scattered(6, 6, 6), scattered(7, 6, 6)),
        (scattered(6, 6, 6), causal().allows(range(6), range(6))),
        (
            added(causal().allows(range(6), range(6)), -torch.inf),
            added(everyone().allows(range(6), range(6)), -torch.inf),
        ),
    ],
    ids=["named", "unnamed", "unnamed and named", "additive"],
)
def test_a_mask_that_is_written_over_is_read_again(
    before: Tensor, after: Tensor, mode: str
) -> None:
    sizes, masks = Sizes(1, HEADS, 6, 6), Masks()
    with torch.inference_mode() if mode == "inference" else nullcontext():
        mask = before.clone()
        first = masks.read(mask, sizes, cross=False)
        mask.copy_(after)
        if mode == "inference":
            # Torch does not count the writes there, so masks are forgotten before each run.
            masks.forget()
        second = masks.read(mask, sizes, cross=False)
    for meaning, told in ((first, before), (second, after)):
        allowed = told if told.dtype == torch.bool else told == 0
        assert_allows(meaning, allowed[None], sizes)


def test_a_mask_of_the_models_own_may_change_between_runs() -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    model, x = Masked(), torch.randn(1, 2, 6, 4)
    with torch.inference_mode(), regard.watch(model) as seen:
        mask = causal().allows(range(6), range(6)).clone()
        model(x)
        mask.copy_(window(before=2).allows(range(6), range(6)))
        model(x)
    seen.verify()
    assert [str(call.pattern) for call in seen] == ["causal()", "causal() & window(before=2)"]


def test_an_unchanged_mask_is_not_read_again() -> None:
    sizes, masks = Sizes(1, HEADS, 6, 6), Masks()
    mask = causal().allows(range(6), range(6))
    first = masks.read(mask, sizes, cross=False)
    assert masks.read(mask, sizes, cross=False) is first
    # The same memory means something else to other queries.
    fewer = masks.read(mask[:, :4], Sizes(1, HEADS, 6, 4), cross=False)
    assert_allows(fewer, mask[None, :, :4], Sizes(1, HEADS, 6, 4))


def test_no_order_is_read_into_the_padding_of_another_sequence() -> None:
    sizes = Sizes(2, HEADS, 1, 9)
    mask = pad(torch.ones(2, 1, 1, 5, dtype=torch.bool), (0, 4))
    own = read(mask, sizes)
    # Of its own sequence, the query is the fifth token, and the others are to come.
    assert own.first_query == 4
    other = read(mask, sizes, cross=True)
    assert repr(other.pattern) == "padding([5, 5])"
    for meaning in (own, other):
        assert_allows(meaning, mask[:, 0], sizes)


def test_no_order_is_read_into_a_triangle_over_another_sequence() -> None:
    sizes = Sizes(1, HEADS, 5, 5)
    allowed = causal().allows(range(5), range(5))
    meaning = read(allowed, sizes, cross=True)
    assert "causal" not in repr(meaning.pattern)
    assert_allows(meaning, allowed[None], sizes)
