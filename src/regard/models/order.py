"""Position encodings of models, by name."""

from typing import NamedTuple

from regard.positions import Bias, Relative, Rotary, alibi

PositionEncoding = str | Rotary | Bias | None
"""A name, a `Rotary` or a `Bias`."""

IN_EMBEDDINGS = ("learned", "sinusoidal")
IN_ATTENTION = ("rotary", "alibi", "relative")


class Order(NamedTuple):
    """The position encoding of an attention layer: rotary, a score bias, or neither."""

    rotary: Rotary | None = None
    bias: Bias | None = None


def order(
    position_encoding: PositionEncoding, *, num_heads: int, key_dim: int, bidirectional: bool
) -> Order:
    """Return the position encoding of attention layers; none for those in the embeddings.

    Args:
        position_encoding: "learned", "sinusoidal", "rotary", "alibi", "relative", an object,
            or None.
        num_heads: number of query heads.
        key_dim: size of a head's queries and keys.
        bidirectional: whether attention is bidirectional.
    """
    if isinstance(position_encoding, Rotary) or position_encoding == "rotary":
        return Order(
            rotary=position_encoding if isinstance(position_encoding, Rotary) else Rotary(key_dim)
        )
    if position_encoding == "alibi":
        return Order(bias=alibi(num_heads))
    if position_encoding == "relative":
        return Order(bias=Relative(num_heads, bidirectional=bidirectional))
    if position_encoding is None or position_encoding in IN_EMBEDDINGS:
        return Order()
    if isinstance(position_encoding, Bias):
        return Order(bias=position_encoding)
    choices = ", ".join(f'"{choice}"' for choice in (*IN_EMBEDDINGS, *IN_ATTENTION))
    raise ValueError(
        f"position_encoding must be one of {choices}, a Rotary, a Bias or None, "
        f"got {position_encoding!r}"
    )
