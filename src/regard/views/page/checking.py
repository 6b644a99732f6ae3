"""Verification of a page: decode its data and compare it with the matrices."""

import base64
import zlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from regard.calls.texts import TextLayer
from regard.matrix import EffectMatrix
from regard.matrix.lazy_matrix import LazyMatrix
from regard.views.page.encoding import FIRST_KEYS, ZERO_EFFECT, in_steps
from regard.views.page.strongest import Strongest

_MOST = 1.001
"""Largest weight: the log-sum-exp of a half-precision kernel is accurate to about 1e-4."""


def check_edges(
    blob: str,
    meant: Sequence[Strongest],
    layer: TextLayer,
    title: str,
    *,
    floor: float,
    weight_bits: int,
    largest: float | None = None,
) -> None:
    """Decode the edges of some heads as a browser does, and compare them.

    Args:
        blob: the edges as stored in the page.
        meant: the strongest keys of these heads.
        layer: their layer, or another one with the same queries and keys.
        title: its name in messages.
        floor: the smallest stored weight.
        weight_bits: 8 or 16 bits for a weight.
        largest: the largest effect by size; None for weights.

    Raises:
        RuntimeError: the edges differ.
        ValueError: a weight is above 1.
    """
    data = np.frombuffer(zlib.decompress(base64.b64decode(blob)), dtype=np.uint8)
    num_queries, num_keys = len(layer.queries.pieces), len(layer.keys.pieces)
    heads = [
        (keys, weights)
        for some in meant
        for keys, weights in zip(some.keys.numpy(), some.weights.numpy(), strict=True)
    ]
    for number, (keys, weights) in enumerate(heads):
        if largest is None and float(weights.max(initial=0.0)) > _MOST:
            raise ValueError(
                f"weights must be from 0 to 1, and {title} has one of {weights.max():.4g}: "
                "watch the model without dropout, which scales weights up"
            )
        if len(keys) != num_queries:
            _fail(title, f"has {len(keys)} rows of weights for {num_queries} tokens")
        there = (keys >= 0) & (np.abs(weights) >= floor)
        counts, found, steps, data = _section(data, num_queries, weight_bits, title)
        if not np.array_equal(counts, there.sum(axis=1)):
            _fail(title, f"has other numbers of keys in section {number} than were found")
        if len(found) and not 0 <= found.min() <= found.max() < num_keys:
            _fail(title, f"looks at key {found.min()} or {found.max()} of {num_keys}")
        if not np.array_equal(found, keys.T[there.T]):
            _fail(title, f"looks at other keys in section {number} than were found")
        steps = steps - (0 if largest is None else ZERO_EFFECT)
        gap = np.abs(steps - in_steps(weights.T[there.T], weight_bits, largest))
        # Rounding is half a step; what is smaller than a step is stored as one, not as 0.
        if not ((steps != 0) & (gap <= np.where(np.abs(steps) == 1, 1.0, 0.5))).all():
            _fail(title, f"has other weights in section {number} than were found")
    if len(data):
        _fail(title, f"has {len(data)} bytes too many")


def _section(
    data: NDArray[np.uint8], num_queries: int, weight_bits: int, title: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.uint8]]:
    """Decode a section as described in `web/README.md`.

    Returns:
        The number of keys of each query; the keys and the quantised weights, by rank and then by
        query; and the data after the section.
    """
    counts, planes = data[:num_queries].astype(np.int64), 2 + weight_bits // 8
    total = int(counts.sum())
    stop = num_queries + planes * total
    if len(data) < stop:
        _fail(title, "is cut short")
    low, high, *steps = data[num_queries:stop].reshape(planes, total).astype(np.int32)
    queries = np.nonzero(np.arange(counts.max(initial=0))[:, None] < counts)[1]
    codes = low + 256 * high
    back = np.where(codes % 2 == 0, codes // 2, -(codes + 1) // 2)
    keys = np.where(codes >= 0x10000 - FIRST_KEYS, 0xFFFF - codes, queries - back)
    weights = steps[0] if weight_bits == 8 else steps[0] + 256 * steps[1]
    return counts, keys, weights, data[stop:]


def check_maps(blob: str, meant: bytes) -> None:
    """Decode the small maps as a browser does, and compare them."""
    if zlib.decompress(base64.b64decode(blob)) != meant:
        _fail("the small maps", "differ from those computed")


def check_weights(
    matrices: Sequence[LazyMatrix],
    found: Sequence[tuple[Strongest, Strongest]],
    average: Strongest,
    titles: Sequence[str],
) -> None:
    """Compare the strongest keys of some queries with recomputed rows of the matrices.

    Args:
        matrices: [heads, queries, keys] or [queries, keys] each.
        found: the strongest keys in the heads of each, and in their mean, or their sum for effects.
        average: the strongest keys in the mean, or the sum, over all matrices.
        titles: their names in messages.

    Raises:
        RuntimeError: the strongest keys differ.
    """
    num_queries = matrices[0].shape[-2]
    places = sorted({0, num_queries // 2, num_queries - 1} & set(range(num_queries)))
    if not places or not matrices[0].shape[-1]:
        return
    signed, total, total_size = matrices[0].view.source.signed, torch.zeros(1), 0.0
    kind = "sum" if signed else "mean"
    for matrix, (heads, of_heads), title in zip(matrices, found, titles, strict=True):
        rows = matrix.rows(places).float().cpu()
        rows = rows.reshape(-1, *rows.shape[-2:])
        size = _size(matrix, places)
        _compare(rows, heads, places, title, size)
        over_heads = rows.sum(dim=0, keepdim=True) if signed else rows.mean(dim=0, keepdim=True)
        size *= len(rows) if signed else 1
        _compare(over_heads, of_heads, places, f"the {kind} of {title}", size)
        total, total_size = total + over_heads, total_size + size
    count = 1 if signed else len(matrices)
    _compare(total / count, average, places, f"the {kind} over all layers", total_size / count)


def _size(matrix: LazyMatrix, places: list[int]) -> float:
    """Return the size of what rows are computed from: 1 of weights, of effects A · |g·v|."""
    if not isinstance(matrix, EffectMatrix):
        return 1.0
    rows = matrix.contributions.rows(places).float().abs().nan_to_num()
    return float(rows.sum(dim=-1).max())


def _compare(
    rows: Float[Tensor, "some_heads places keys"],
    found: Strongest,
    places: list[int],
    title: str,
    size: float,
) -> None:
    keys, weights = found.keys[:, places].long(), found.weights[:, places]
    there = rows.gather(2, keys.clamp(0, rows.shape[2] - 1)).masked_fill(keys < 0, 0.0)
    largest = rows.abs().topk(min(keys.shape[2], rows.shape[2]), dim=2).values
    largest = pad(largest, (0, keys.shape[2] - largest.shape[2]))
    for shown, expected in ((weights, there), (weights.abs(), largest)):
        # Rounding depends on the number of rows, and rows with NaN are not shown.
        if not torch.allclose(shown, expected, rtol=1e-3, atol=1e-5 * size, equal_nan=True):
            _fail(title, "has other weights than its matrix")


def _fail(title: str, fault: str) -> NoReturn:
    raise RuntimeError(
        f"the page differs from the matrices: {title} {fault}. This is a bug in Regard; please "
        "report it with the code that led here"
    )
