"""Queries and keys of a page, from which each dimension's part of a score is computed."""

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.texts import TextLayer
from regard.views.page.encoding import packed


@dataclass(frozen=True)
class Vectors:
    """The queries and keys of a layer, as its kernel got them.

    Attributes:
        query: the queries.
        key: the keys; heads of a group share them.
        scale: factor on q·k.
        has_bias: whether the model adds a bias to the scores.
    """

    query: Float[Tensor, "heads queries key_dim"]
    key: Float[Tensor, "key_heads keys key_dim"]
    scale: float
    has_bias: bool

    def as_text(self) -> str:
        """Return both as text, compressed, in float32; they are read again and compared."""
        parts = [one.contiguous().numpy().astype("<f4") for one in (self.query, self.key)]
        data = b"".join(part.tobytes() for part in parts)
        text = packed(data)
        found = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<f4")
        assert np.array_equal(found, np.concatenate([x.ravel() for x in parts]), equal_nan=True)
        return text

    def as_data(self) -> dict[str, object]:
        """Return what it takes to read them."""
        return {
            "dim": self.query.shape[-1],
            "key_heads": self.key.shape[0],
            "scale": self.scale,
            "bias": self.has_bias,
        }


def vectors_of(layers: Sequence[TextLayer], batch: int | None, limit: int) -> list[Vectors]:
    """Return the queries and keys of layers.

    Raises:
        ValueError: a layer has none, or all of them would take more than `limit` bytes.
    """
    every = [layer.call.scores for layer in layers]
    size = 4 * sum(math.prod(x.shape[1:]) for one in every for x in (one.call.query, one.call.key))
    if size > limit:
        raise ValueError(
            f"dimensions=True: queries and keys take {size / 1e6:,.0f} MB, more than limit="
            f"{limit:,} bytes: choose fewer layers, or raise limit"
        )
    found: list[Vectors] = []
    for layer, scores in zip(layers, every, strict=True):
        query, key = (one[batch or 0].cpu() for one in (layer.call.query, layer.call.key))
        if query.dtype == torch.float64:
            raise ValueError(f"dimensions=True: {layer.title} has float64, which pages don't store")
        bias = scores.biased
        found.append(Vectors(query.float(), key.float(), scores.call.scale, bias))
    return found
