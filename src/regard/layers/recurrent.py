"""Self-attention inside a recurrent network."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import check_positive
from regard.layers.alignment import alignment
from regard.patterns import padding


class RecurrentState(NamedTuple):
    """The state of a `RecurrentSelfAttention` after some steps.

    Attributes:
        states: h_1 … h_t, [batch, steps, state_dim].
        marks: the alignment's view of the states, [batch, steps, state_dim].
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
        real = None
        if lengths is not None:
            pattern = padding(lengths)
            pattern.check(x.shape[0], range(num_steps), num_steps)
            real = pattern.allows([0], range(num_steps)).to(x.device)[:, 0, :, None]
            # NaN in the padding must not reach a gradient.
            x = x.where(real, x.new_zeros(()))
        past: RecurrentState | None = None
        contexts: list[Tensor] = []
        rows: list[Tensor] = []
        for step in range(num_steps):
            weights, past = self.step(x[:, step], past)
            contexts.append(past.context)
            rows.append(nn.functional.pad(weights, (0, num_steps - step - 1)))
        if past is None:
            nothing = x.new_zeros(x.shape[0], 0, self.state_dim)
            return RecurrentOutput(nothing, nothing, x.new_zeros(x.shape[0], 0, 0))
        found = past.states, torch.stack(contexts, dim=1), torch.stack(rows, dim=1)
        if real is not None:
            found = (part.where(real, part.new_zeros(())) for part in found)
        return RecurrentOutput(*found)

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
        states, marks = state[:, None], self.align.marks(state[:, None])
        if past is not None:
            states = torch.cat([past.states, states], dim=1)
            marks = torch.cat([past.marks, marks], dim=1)
        weights = torch.softmax(self.align.score(state, marks), dim=1)
        context = (weights[:, None] @ states)[:, 0]
        return weights, RecurrentState(states, marks, context)
