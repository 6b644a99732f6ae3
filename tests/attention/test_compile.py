"""Modules that call `attend` go through `torch.compile`."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.positions import alibi
from tests.elsewhere import Elsewhere

BATCH, LENGTH, HEADS, DIM = 2, 67, 3, 8

WHOLE = {
    "dense": {},
    "causal": {"pattern": regard.causal()},
    "causal by name": {"pattern": regard.causal(), "backend": "fused"},
}
"""What must compile to one graph, without a break."""

BROKEN = {
    "window": {"pattern": regard.causal() & regard.window(before=9), "backend": "blocks"},
    "window and bias": {"pattern": regard.window(before=9), "bias": alibi(HEADS)},
}
"""What is left as it is between two graphs."""


class Layer(nn.Module):
    """A small self-attention."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.mixed = nn.Linear(DIM * HEADS, 3 * DIM * HEADS)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        """Attend to the tokens, [batch, sequence, heads · dim]."""
        split = self.mixed(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        output = regard.attend(*split, **self.options)
        return output.transpose(1, 2).flatten(2).relu()


def output_and_gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    output = layer(x)
    return [output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])]


def compare(name: str) -> None:
    """Assert that a compiled layer gives what it gave before, gradients included."""
    torch.manual_seed(0)
    layer = Layer(**(WHOLE | BROKEN)[name])
    compiled = torch.compile(layer, fullgraph=name in WHOLE)
    # The second length must not be taken for the first.
    for length in (LENGTH, LENGTH, 2 * LENGTH + 1):
        x = torch.randn(BATCH, length, HEADS * DIM)
        eager, found = (output_and_gradients(module, x) for module in (layer, compiled))
        for one, other in zip(eager, found, strict=True):
            # The longest sums are over all tokens; a compiled graph may sum in another order.
            share = 4 * BATCH * length * torch.finfo(torch.float32).eps
            size = float(one.detach().abs().max())
            torch.testing.assert_close(other, one, rtol=share, atol=share * size)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WHOLE, *BROKEN])
def test_compiled_layers_give_the_same(name: str, elsewhere: Elsewhere) -> None:
    elsewhere(compare, name)
