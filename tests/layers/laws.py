"""What holds of every layer as a module."""

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.layers.rounding import shuffle

in_every_way = pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))],
    ids=["deepcopy", "pickle"],
)
"""Run a test with each way of copying a layer."""


def assert_copies(
    layer: nn.Module,
    copied: Callable[[nn.Module], nn.Module],
    run: Callable[[nn.Module], Tensor],
) -> None:
    """Assert that a copy computes the same, has weights of its own, and takes over those of others.

    Args:
        layer: the layer.
        copied: makes a copy.
        run: computes something with a layer.
    """
    before, twin = run(layer), copied(layer)
    assert torch.equal(run(twin), before)
    shuffle(twin, seed=1)
    assert torch.equal(run(layer), before)
    assert not torch.equal(run(twin), before)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(run(twin), before)


def assert_learns(
    layer: nn.Module, run: Callable[[], Tensor], target: Tensor, *, rate: float, share: float
) -> None:
    """Assert that each of twelve steps lowers the loss, and all of them to a share of what it was.

    Args:
        layer: the layer.
        run: computes what should become the target.
        target: what should be computed.
        rate: the rate of learning.
        share: of the loss at the start, what may be left.
    """
    steps = torch.optim.SGD(layer.parameters(), lr=rate)
    losses: list[float] = []
    for _ in range(12):
        loss = nn.functional.mse_loss(run(), target)
        losses.append(loss.item())
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[-1] < share * losses[0]
