"""ALiBi: attention with linear biases."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import check_positive
from regard.positions.bias import Adjusted, Floats, Ints


class Alibi(nn.Module):
    """Lower a score in proportion to the distance between query and key.

    `alibi` makes it with the slopes of the paper. It is a module so that its slopes move with the
    model; they are constants, and stay in float32 when the model is cast.

    Args:
        slopes: penalty per step of distance, for each head.
        device: device of the slopes; the default device if None.
    """

    slopes: Tensor
    additive = True
    relative = True
    batch_size = None

    def __init__(
        self, slopes: Sequence[float], *, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        # Floats, because casting the module would round the buffer, and a meta tensor has no data.
        self._exact = tuple(slopes)
        self.register_buffer("slopes", self._tensor(device), persistent=False)

    def _tensor(self, device: torch.device | str | None) -> Float[Tensor, "heads"]:
        return torch.tensor(self._exact, dtype=torch.float32, device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Alibi":
        super()._apply(fn, recurse)
        self.slopes = self._tensor(self.slopes.device)
        return self

    @property
    def num_heads(self) -> int:
        return self.slopes.shape[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.slopes,)

    def adjust(self, scores: Floats, batch: Ints, head: Ints, query: Ints, key: Ints) -> Adjusted:
        """Return `scores - slope_of_head * |query - key|`; see `Bias.adjust`."""
        # bfloat16 rounds 257 to 256: multiply distances in float32 or better.
        exact = torch.promote_types(scores.dtype, torch.float32)
        penalty = self.slopes[head].to(exact) * (query - key).abs().to(exact)
        return (scores.to(exact) - penalty).to(scores.dtype)


def alibi(num_heads: int, *, device: torch.device | str | None = None) -> Alibi:
    """Bias scores by distance, with a slope for each head (Press et al., 2022).

        score(i, j)  ->  score(i, j) - slope_h * |i - j|

    For n heads, n a power of two, the slopes are 2^(-8/n), 2^(-16/n), ..., 2^-8. For other n they
    are those of the next lower power of two m, followed by the first, third, fifth, ... slope of
    2m heads until there are n. Works for causal and bidirectional attention.

    Args:
        num_heads: number of query heads.
        device: device of the slopes; the default device if None.

    Raises:
        ValueError: if `num_heads` is not positive.

    >>> alibi(4).slopes
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    >>> alibi(3).slopes
    tensor([0.0625, 0.0039, 0.2500])
    """
    check_positive(num_heads=num_heads)
    power = 1 << (num_heads.bit_length() - 1)
    slopes = _geometric(power) + _geometric(2 * power)[::2][: num_heads - power]
    return Alibi(slopes, device=device)


def _geometric(count: int) -> list[float]:
    return [2.0 ** (-8.0 * (index + 1) / count) for index in range(count)]
