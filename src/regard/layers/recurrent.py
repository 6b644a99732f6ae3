"""Self-attention inside a recurrent network, and the alignments that score its states.

An alignment scores the current state against all states so far. The projection of a state doesn't
depend on later ones, so it is computed once per state and kept:

    projected_states = align.project(states)                    once per state
    scores           = align.score(state, projected_states)     in each step
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import check_choice, check_positive
from regard.patterns import padding


class RecurrentState(NamedTuple):
    """The state of a `RecurrentSelfAttention` after some steps.

    Attributes:
        states: h_1 … h_t, [batch, steps, state_dim].
        marks: the states as the alignment projects them, [batch, steps, state_dim].
        context: c_t, [batch, state_dim].
    """

    states: Float[Tensor, "batch steps state_dim"]
    marks: Float[Tensor, "batch steps state_dim"]
    context: Float[Tensor, "batch state_dim"]


class RecurrentOutput(NamedTuple):
    """All steps of a `RecurrentSelfAttention`.

    Attributes:
        states: h, [batch, sequence, state_dim].
        contexts: c, [batch, sequence, state_dim].
        weights: α, [batch, sequence, sequence], lower triangular; row t holds α_{t,i}.
    """

    states: Float[Tensor, "batch sequence state_dim"]
    contexts: Float[Tensor, "batch sequence state_dim"]
    weights: Float[Tensor, "batch sequence sequence"]


class RecurrentSelfAttention(nn.Module):
    """A recurrent network whose steps attend to all earlier states (Cheng et al., 2016).

        h_t     = tanh(A · [x_t, c_{t−1}])                     c_0 = 0
        α_{t,i} = softmax over i ≤ t of align(h_i, h_t)
        c_t     = Σ_{i ≤ t} α_{t,i} h_i                        so that c_1 = h_1

    Steps are sequential: each needs the context of the one before. They are causal by construction.
    In training, memory grows with the square of the length.

    Args:
        input_dim: size of the vectors x_t.
        state_dim: size of the states h_t and of the contexts c_t.
        align: alignment of two states: "dot", h_i·h_t; "scaled_dot", h_i·h_t / √state_dim;
            "bilinear", h_iᵀ W h_t; or "additive", vᵀ tanh(W h_i + U h_t).
        bias: whether A has a bias.

    Raises:
        ValueError: a size is not positive, or the alignment is unknown.

    >>> import torch
    >>> layer = RecurrentSelfAttention(input_dim=3, state_dim=5)
    >>> output = layer(torch.randn(1, 4, 3))
    >>> output.weights[0, 0]
    tensor([1., 0., 0., 0.], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self, input_dim: int, state_dim: int, *, align: str = "scaled_dot", bias: bool = False
    ) -> None:
        super().__init__()
        check_positive(input_dim=input_dim, state_dim=state_dim)
        self.input_dim, self.state_dim = input_dim, state_dim
        self.align = alignment(align, state_dim)
        self.transition = nn.Linear(input_dim + state_dim, state_dim, bias)

    def forward(
        self,
        x: Float[Tensor, "batch sequence input_dim"],
        *,
        lengths: Sequence[int] | Int[Tensor, "batch"] | None = None,
    ) -> RecurrentOutput:
        """Run all steps.

        Args:
            x: [batch, sequence, input_dim].
            lengths: number of real steps of each sequence, [batch]; all by default. States,
                contexts and weights of the others are zeros.

        Raises:
            ValueError: `lengths` doesn't fit.
        """
        num_steps = x.shape[1]

        # 1. NaN in the padding must not reach a gradient.
        is_real = None
        if lengths is not None:
            pattern = padding(lengths)
            pattern.check(x.shape[0], range(num_steps), num_steps)
            is_real = pattern.allows([0], range(num_steps)).to(x.device)[:, 0, :, None]
            x = x.where(is_real, x.new_zeros(()))

        # 2. Each step needs the context of the one before.
        past: RecurrentState | None = None
        contexts: list[Tensor] = []
        rows: list[Tensor] = []
        for step in range(num_steps):
            weights, past = self.step(x[:, step], past)
            contexts.append(past.context)
            rows.append(nn.functional.pad(weights, (0, num_steps - step - 1)))
        if past is None:
            empty = x.new_zeros(x.shape[0], 0, self.state_dim)
            return RecurrentOutput(empty, empty, x.new_zeros(x.shape[0], 0, 0))

        # 3. Join the steps; those of the padding are zeros.
        output = past.states, torch.stack(contexts, dim=1), torch.stack(rows, dim=1)
        if is_real is not None:
            output = (part.where(is_real, part.new_zeros(())) for part in output)
        return RecurrentOutput(*output)

    def step(
        self, x: Float[Tensor, "batch input_dim"], past: RecurrentState | None = None
    ) -> tuple[Float[Tensor, "batch steps"], RecurrentState]:
        """Run one step.

        Args:
            x: x_t, [batch, input_dim].
            past: state after the previous step; None for the first.

        Returns:
            The weights α_{t,1} … α_{t,t}, and the state after this step, with h_t last and c_t.
        """
        context = x.new_zeros(x.shape[0], self.state_dim) if past is None else past.context
        state = torch.tanh(self.transition(torch.cat([x, context], dim=1)))
        states, projected_states = state[:, None], self.align.project(state[:, None])
        if past is not None:
            states = torch.cat([past.states, states], dim=1)
            projected_states = torch.cat([past.marks, projected_states], dim=1)
        weights = torch.softmax(self.align.score(state, projected_states), dim=1)
        context = (weights[:, None] @ states)[:, 0]
        return weights, RecurrentState(states, projected_states, context)


State = Float[Tensor, "batch state_dim"]
States = Float[Tensor, "batch steps state_dim"]
StepScores = Float[Tensor, "batch steps"]


def alignment(name: str, state_dim: int) -> "Dot | Bilinear | Additive":
    """Make an alignment by its name."""
    check_choice("align", name, ("dot", "scaled_dot", "bilinear", "additive"))
    if name == "bilinear":
        return Bilinear(state_dim)
    if name == "additive":
        return Additive(state_dim)
    return Dot(state_dim, scaled=name == "scaled_dot")


class Dot(nn.Module):
    """Score by the dot product h_i·h_t, or by h_i·h_t / √state_dim if scaled."""

    def __init__(self, state_dim: int, *, scaled: bool) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(state_dim) if scaled else 1.0

    def project(self, states: States) -> States:
        """Return the states themselves."""
        return states

    def score(self, state: State, projected_states: States) -> StepScores:
        return (projected_states @ state[:, :, None])[:, :, 0] * self.scale


class Bilinear(nn.Module):
    """Score by h_iᵀ W h_t, with a learned matrix W (Luong et al., 2015)."""

    def __init__(self, state_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(state_dim, state_dim))
        nn.init.xavier_uniform_(self.weight)

    def project(self, states: States) -> States:
        """Return the states times W."""
        return states @ self.weight

    def score(self, state: State, projected_states: States) -> StepScores:
        return (projected_states @ state[:, :, None])[:, :, 0]


class Additive(nn.Module):
    """Score by vᵀ tanh(W h_i + U h_t), with learned W, U and v (Bahdanau et al., 2015)."""

    def __init__(self, state_dim: int) -> None:
        super().__init__()
        self.earlier = nn.Linear(state_dim, state_dim, bias=False)
        self.current = nn.Linear(state_dim, state_dim, bias=False)
        self.total = nn.Linear(state_dim, 1, bias=False)

    def project(self, states: States) -> States:
        """Return W h_i."""
        return self.earlier(states)

    def score(self, state: State, projected_states: States) -> StepScores:
        return self.total(torch.tanh(projected_states + self.current(state)[:, None]))[:, :, 0]
