"""The feed-forward layer."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import check_choice, check_positive

_Function = Callable[[Tensor], Tensor]

_PLAIN: dict[str, _Function] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
}
_GATED: dict[str, _Function] = {
    "geglu": functional.gelu,
    "geglu_tanh": partial(functional.gelu, approximate="tanh"),
    "swiglu": functional.silu,
}


class FeedForward(nn.Module):
    """Apply a hidden layer to each position: down(f(up x)), or down(f(gate x) · up x).

    Args:
        model_dim: input and output size.
        hidden_dim: size of the hidden layer.
        activation: "relu", "gelu", "gelu_tanh" (GPT-2's approximation) or "silu"; or, with a gate
            (Shazeer, 2020), "swiglu" (Llama), "geglu" or "geglu_tanh".
        bias: whether the linear layers have biases.

    Raises:
        ValueError: a size is not positive, or the activation is unknown.
    """

    def __init__(
        self, model_dim: int, hidden_dim: int, *, activation: str = "gelu", bias: bool = True
    ) -> None:
        super().__init__()
        check_positive(model_dim=model_dim, hidden_dim=hidden_dim)
        check_choice("activation", activation, _PLAIN | _GATED)
        self.activation = activation
        self.gate = nn.Linear(model_dim, hidden_dim, bias) if activation in _GATED else None
        self.up = nn.Linear(model_dim, hidden_dim, bias)
        self.down = nn.Linear(hidden_dim, model_dim, bias)

    def forward(
        self, x: Float[Tensor, "batch sequence model_dim"]
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return [batch, sequence, model_dim]."""
        if self.gate is None:
            return self.down(_PLAIN[self.activation](self.up(x)))
        return self.down(_GATED[self.activation](self.gate(x)) * self.up(x))

    def extra_repr(self) -> str:
        return f"activation={self.activation}"
