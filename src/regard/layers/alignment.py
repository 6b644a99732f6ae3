"""Alignment functions of a recurrent network.

An alignment scores a state against earlier ones. `marks` projects those; it doesn't
depend on later states, so it is computed once per state.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import check_choice


class Dot(nn.Module):
    """Score by the dot product h_i·h_t, or by h_i·h_t / √state_dim if scaled."""

    def __init__(self, state_dim: int, *, scaled: bool) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(state_dim) if scaled else 1.0

    def marks(
        self, states: Float[Tensor, "batch steps state_dim"]
    ) -> Float[Tensor, "batch steps state_dim"]:
        """Return the states themselves."""
        return states

    def score(
        self,
        state: Float[Tensor, "batch state_dim"],
        marks: Float[Tensor, "batch steps state_dim"],
    ) -> Float[Tensor, "batch steps"]:
        return (marks @ state[:, :, None])[:, :, 0] * self.scale


class Bilinear(nn.Module):
    """Score by h_iᵀ W h_t, with a learned matrix W (Luong et al., 2015)."""

    def __init__(self, state_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(state_dim, state_dim))
        nn.init.xavier_uniform_(self.weight)

    def marks(
        self, states: Float[Tensor, "batch steps state_dim"]
    ) -> Float[Tensor, "batch steps state_dim"]:
        """Return the states times W."""
        return states @ self.weight

    def score(
        self,
        state: Float[Tensor, "batch state_dim"],
        marks: Float[Tensor, "batch steps state_dim"],
    ) -> Float[Tensor, "batch steps"]:
        return (marks @ state[:, :, None])[:, :, 0]


class Additive(nn.Module):
    """Score by vᵀ tanh(W h_i + U h_t), with learned W, U and v (Bahdanau et al., 2015)."""

    def __init__(self, state_dim: int) -> None:
        super().__init__()
        self.earlier = nn.Linear(state_dim, state_dim, bias=False)
        self.current = nn.Linear(state_dim, state_dim, bias=False)
        self.total = nn.Linear(state_dim, 1, bias=False)

    def marks(
        self, states: Float[Tensor, "batch steps state_dim"]
    ) -> Float[Tensor, "batch steps state_dim"]:
        """Return W h_i."""
        return self.earlier(states)

    def score(
        self,
        state: Float[Tensor, "batch state_dim"],
        marks: Float[Tensor, "batch steps state_dim"],
    ) -> Float[Tensor, "batch steps"]:
        return self.total(torch.tanh(marks + self.current(state)[:, None]))[:, :, 0]


def alignment(name: str, state_dim: int) -> Dot | Bilinear | Additive:
    """Make an alignment by its name."""
    check_choice("align", name, ("dot", "scaled_dot", "bilinear", "additive"))
    if name == "bilinear":
        return Bilinear(state_dim)
    if name == "additive":
        return Additive(state_dim)
    return Dot(state_dim, scaled=name == "scaled_dot")
