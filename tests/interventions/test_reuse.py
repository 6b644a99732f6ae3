"""Runs from one block on: what is computed, and when nothing may be reused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.interventions import heads
from regard.interventions.reuse import Reuse
from tests.capture.traces import Attention

pytestmark = pytest.mark.usefixtures("one_thread")


class Block(nn.Module):
    """A layer that counts its runs, and may do more than compute."""

    def __init__(self, quirk: str) -> None:
        super().__init__()
        self.attention, self.quirk = Attention(), quirk
        self.num_runs, self.seen = 0, []

    def forward(self, x: Tensor) -> Any:
        self.num_runs += 1
        y = self.attention(x)
        if self.quirk == "changes its input":
            return x.add_(y)
        if self.quirk == "collects":
            self.seen.append(y.sum())
        return {"output": y} if self.quirk == "returns a dictionary" else y


class Model(nn.Module):
    def __init__(self, quirk: str = "", layers: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block(quirk) for _ in range(layers)])
        self.quirk = quirk

    def forward(self, x: Tensor) -> Tensor:
        x, total = x.clone(), torch.zeros(())
        for block in self.blocks:
            block.seen.clear()
        for block in [*self.blocks, *self.blocks] if self.quirk == "twice" else self.blocks:
            x = block(x)
            x = x["output"] if isinstance(x, dict) else x
        for block in self.blocks:
            total = total + sum(block.seen)
        return x.square().sum() + total


QUIRKS = ["", "changes its input", "collects", "twice", "returns a dictionary"]


@pytest.mark.parametrize("quirk", QUIRKS)
def test_effects_are_those_of_whole_runs(quirk: str) -> None:
    model, x = Model(quirk).requires_grad_(False), torch.randn(1, 6, 8)
    found = heads(model, lambda: model(x), how="exact").effects
    for layer in range(4):
        for head in range(found.shape[1]):
            with torch.no_grad(), regard.ablate(model, [(layer, head)]):
                expected = model(x)
            assert float(found[layer, head]) == float(model(x).double() - expected.double())


def test_only_what_comes_after_is_computed() -> None:
    model, x = Model(), torch.randn(1, 6, 8)
    with torch.no_grad():
        reuse = Reuse(model, lambda: model(x))
        before = [block.num_runs for block in model.blocks]
        assert before == [1, 1, 1, 2]
        with reuse.before("blocks.2.attention"):
            assert torch.equal(model(x), reuse.target)
            assert [block.num_runs for block in model.blocks] == [1, 1, 2, 3]
            # Another input is computed.
            other = model(x + 1)
        assert [block.num_runs for block in model.blocks] == [2, 2, 3, 4]
        assert torch.equal(other, model(x + 1))
        assert all("forward" not in block.__dict__ for block in model.blocks)


@pytest.mark.parametrize("quirk", QUIRKS[1:])
def test_blocks_that_do_more_are_computed(quirk: str) -> None:
    model, x = Model(quirk), torch.randn(1, 6, 8)
    with torch.no_grad():
        reuse = Reuse(model, lambda: model(x))
        runs = [block.num_runs for block in model.blocks]
        with reuse.before("blocks.3"):
            assert torch.equal(model(x), reuse.target)
    each = 2 if quirk == "twice" else 1
    assert [block.num_runs - ran for block, ran in zip(model.blocks, runs, strict=True)] == [
        each
    ] * 4


def test_tensors_of_inference_are_computed() -> None:
    model, x = Model(), torch.randn(1, 6, 8)
    with torch.inference_mode():
        reuse = Reuse(model, lambda: model(x))
        with reuse.before("blocks.3"):
            model(x)
    assert [block.num_runs for block in model.blocks] == [2, 2, 2, 2]


def test_a_forward_that_was_replaced_is_called() -> None:
    model, x = Model(), torch.randn(1, 6, 8)
    calls: list[int] = []
    plain = model.blocks[0].forward

    def forward(x: Tensor) -> Tensor:
        calls.append(1)
        return plain(x)

    model.blocks[0].forward = forward
    with torch.no_grad(), Reuse(model, lambda: model(x)).before("blocks.3"):
        model(x)
    assert len(calls) == 2
    assert model.blocks[0].forward is forward
