"""How a model of this library is told the order of its tokens."""

from typing import NamedTuple

from regard.positions import Bias, Relative, Rotary, alibi

Positions = str | Rotary | Bias | None
"""A name, or the object itself: a rotation of queries and keys, or a bias on scores."""

IN_EMBEDDINGS = ("learned", "sinusoidal")
IN_ATTENTION = ("rotary", "alibi", "relative")


class Order(NamedTuple):
    """What attention is told of order.

    Attributes:
        rotary: turns queries and keys by their positions, or None.
        bias: what order does to a score, or None.
    """

    rotary: Rotary | None = None
    bias: Bias | None = None


def order(positions: Positions, *, num_heads: int, key_dim: int, bidirectional: bool) -> Order:
    """Return what attention is told of order, which is nothing if embeddings are.

    Args:
        positions: "learned", "sinusoidal", "rotary", "alibi", "relative", an object, or None.
        num_heads: number of query heads.
        key_dim: size of a head's queries and keys.
        bidirectional: whether positions look ahead too.

    Raises:
        ValueError: there is no such name.
    """
    if isinstance(positions, Rotary) or positions == "rotary":
        return Order(rotary=positions if isinstance(positions, Rotary) else Rotary(key_dim))
    if positions == "alibi":
        return Order(bias=alibi(num_heads))
    if positions == "relative":
        return Order(bias=Relative(num_heads, bidirectional=bidirectional))
    if positions is None or positions in IN_EMBEDDINGS:
        return Order()
    if isinstance(positions, Bias):
        return Order(bias=positions)
    choices = ", ".join(f'"{choice}"' for choice in (*IN_EMBEDDINGS, *IN_ATTENTION))
    raise ValueError(
        f"positions must be one of {choices}, a Rotary, a Bias or None, got {positions!r}"
    )
