"""The results of layers that are kept as they are, and written to later."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.capture.projected_tokens import ProjectedTokens
from regard.internals import without_torch_function

LENGTH, BATCH, HEADS, DIM = 2, 3, 2, 8


class TokensFirst(nn.Module):
    """Gets [tokens, batch, features]; only numbers tell the order of sequences and heads."""

    def __init__(self, write: Callable[[Tensor], object], *, heads_first: bool) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.project = nn.Linear(HEADS * DIM, 3 * HEADS * DIM)
        self.write, self.heads_first = write, heads_first

    def forward(self, x: Tensor) -> Tensor:
        all_of_it = self.project(x)
        self.write(all_of_it)
        query, key, value = (self.split(part) for part in all_of_it.chunk(3, dim=-1))
        self.weights = (query @ key.mT).softmax(dim=-1)
        return self.weights @ value

    def split(self, x: Tensor) -> Tensor:
        """Return [batch · heads, tokens, dim], or heads first."""
        order = (2, 1, 0, 3) if self.heads_first else (1, 2, 0, 3)
        return x.view(LENGTH, BATCH, HEADS, DIM).permute(order).reshape(-1, LENGTH, DIM)


def leave(projected: Tensor) -> None:
    """Write nothing."""


def scale(projected: Tensor) -> None:
    """Scale the queries in place, as many models do."""
    projected[..., : HEADS * DIM].mul_(0.5)


def rectify(projected: Tensor) -> None:
    """Write by a function that has an option for it."""
    functional.leaky_relu(projected[..., : HEADS * DIM], inplace=True)


def scale_unseen(projected: Tensor) -> None:
    """Do the same where no function mode sees it."""
    with without_torch_function():
        scale(projected)


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("write", [leave, scale, rectify])
def test_heads_are_known_after_a_write(write: Callable[[Tensor], object], heads_first: bool):
    model = TokensFirst(write, heads_first=heads_first)
    x = torch.randn(LENGTH, BATCH, HEADS * DIM)
    with torch.no_grad(), regard.watch(model) as seen:
        model(x)
    expected = model.weights.view(BATCH, HEADS, LENGTH, LENGTH)
    if heads_first:
        expected = model.weights.view(HEADS, BATCH, LENGTH, LENGTH).transpose(0, 1)
    assert seen[0].heads_known
    torch.testing.assert_close(seen[0].matrix.dense(), expected)


@pytest.mark.parametrize("heads_first", [False, True])
def test_what_was_written_to_unseen_is_refused(heads_first: bool):
    model = TokensFirst(scale_unseen, heads_first=heads_first)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(LENGTH, BATCH, HEADS * DIM))
    with pytest.raises(ValueError, match="modified in place"):
        _ = seen[0].matrix


def test_inference_tensors_have_no_version():
    model = TokensFirst(scale_unseen, heads_first=True)
    with torch.inference_mode(), regard.watch(model) as seen:
        model(torch.randn(LENGTH, BATCH, HEADS * DIM))
    assert seen[0].heads_known


def test_a_part_does_not_keep_the_whole_alive():
    whole = torch.randn(1, 100, 8)
    projected = ProjectedTokens()
    projected.add(whole[:, :1], [])
    (layer,) = projected._layers  # pyright: ignore[reportPrivateUsage]
    assert layer.result is None
