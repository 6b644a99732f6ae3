"""Which masks `watch` keeps, and when it reads them again."""

import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.capture.masks import Masks, ParsedMask, Sizes
from regard.patterns import causal, columns, everyone, window
from tests.capture.masking import HEADS, added, assert_allows, scattered

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = 4096


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


def test_causal_masks_are_not_kept() -> None:
    sizes, masks = Sizes(1, HEADS, LONG, LONG), Masks()
    memory: list[weakref.ref[np.ndarray]] = []
    masks_read: list[ParsedMask] = []
    for _ in range(10):
        # An array lives for as long as a tensor has its memory.
        array = np.tri(LONG, dtype=bool)
        memory.append(weakref.ref(array))
        masks_read.append(masks.read(torch.from_numpy(array)[None, None], sizes, cross=False))
        del array
    # Some are, so that the next layer's mask is known again.
    assert 0 < sum(one() is not None for one in memory) < 5
    masks.forget()
    assert all(one() is None for one in memory)
    assert all(parsed.pattern == causal() for parsed in masks_read)
    assert all(parsed.bias is None for parsed in masks_read)


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
        second = masks.read(mask, sizes, cross=False)
    for parsed, told in ((first, before), (second, after)):
        allowed = told if told.dtype == torch.bool else told == 0
        assert_allows(parsed, allowed[None], sizes)


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


def test_few_masks_are_kept() -> None:
    """A model that makes a new mask for each step, none of which a pattern describes."""
    sizes, masks = Sizes(1, HEADS, 64, 64), Masks()
    patterns = [
        weakref.ref(masks.read(scattered(seed, 1, 1, 64, 64), sizes, cross=False).pattern)
        for seed in range(50)
    ]
    masks.forget()
    assert sum(one() is not None for one in patterns) < 10
