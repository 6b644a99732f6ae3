"""What the functions of FlexAttention read may change after the call: what was seen does not."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

import regard
from regard.capture import Overwritten, Seen

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]

LENGTH = 64
IDS = torch.arange(LENGTH) // 16
STATE: Any = SimpleNamespace(ids=IDS, listed=[IDS], shift=3)
BIAS = torch.linspace(-2, 2, LENGTH)


@pytest.fixture(autouse=True)
def as_before() -> None:
    IDS.copy_(torch.arange(LENGTH) // 16)
    BIAS.copy_(torch.linspace(-2, 2, LENGTH))
    STATE.shift = 3


def in_a_closure() -> Callable[..., Tensor]:
    ids = IDS
    return lambda batch, head, query, key: ids[query] == ids[key]


def in_a_global(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return IDS[query] == IDS[key]


def in_an_attribute(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return STATE.ids[query] == STATE.ids[key]


def in_a_list(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return STATE.listed[0][query] == STATE.listed[0][key]


def by_a_number(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query - key < STATE.shift


def added(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score + BIAS[key]


def scaled_by_a_number(
    score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
) -> Tensor:
    return score + STATE.shift * (query - key)


MASKS = [
    in_a_closure(),
    in_a_global,
    in_an_attribute,
    in_a_list,
    and_masks(in_a_closure(), by_a_number),
]


class Flex(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return flex_attention(query, key, value, **self.options)


def masked(rule: Callable[..., Tensor]) -> Flex:
    size = (None, None, LENGTH, LENGTH)
    return Flex(block_mask=create_block_mask(rule, *size, device="cpu", BLOCK_SIZE=16))


def looked_at(model: nn.Module, **options: Any) -> tuple[Seen, Tensor]:
    """Return what was seen, and what it is before anything is changed."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, LENGTH, 8) for _ in range(3)]
    with torch.no_grad(), regard.watch(model, **options) as seen:
        model(*inputs)
    seen.verify()
    with torch.no_grad(), regard.watch(model, keep="copies") as other:
        model(*inputs)
    return seen, other[0].matrix.dense()


def change() -> None:
    IDS.copy_(torch.arange(LENGTH) // 4)
    BIAS.zero_()
    STATE.shift = 9


MODELS = [*map(masked, MASKS), Flex(score_mod=added)]


@pytest.mark.parametrize("model", MODELS)
def test_tensors_that_were_written_over_are_noticed(model: nn.Module) -> None:
    seen, expected = looked_at(model)
    matrix = seen[0].matrix
    assert torch.equal(matrix.dense(), expected)
    change()
    with pytest.raises(Overwritten, match=r"(mask|bias) was modified in place after the call"):
        _ = seen[0].matrix
    with pytest.raises(Overwritten, match=r"(mask|bias) was modified in place"):
        matrix.dense()


@pytest.mark.parametrize("model", MODELS)
def test_copies_are_of_what_was_read(model: nn.Module) -> None:
    seen, expected = looked_at(model, keep="copies")
    change()
    assert torch.equal(seen[0].matrix.dense(), expected)


@pytest.mark.parametrize("model", [masked(by_a_number), Flex(score_mod=scaled_by_a_number)])
def test_numbers_are_those_of_the_call(model: nn.Module) -> None:
    seen, expected = looked_at(model)
    change()
    assert torch.equal(seen[0].matrix.dense(), expected)


def test_tensors_of_inference_mode_are_copied() -> None:
    with torch.inference_mode():
        ids = torch.arange(LENGTH) // 16
        model = masked(lambda batch, head, query, key: ids[query] == ids[key])
        seen, expected = looked_at(model)
        ids.copy_(torch.arange(LENGTH) // 4)
    assert torch.equal(seen[0].matrix.dense(), expected)
