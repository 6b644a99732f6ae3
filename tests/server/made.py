"""Small real recordings, and what must be in them, computed in float64 by a dozen lines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard import AttentionMatrix, causal
from regard.calls import AttentionCall
from regard.recording import Recording, save

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\u202egnirts desrever",
    '"; alert(3); "',
    "\x00\x1b[31m",
    "🦜",
    "x" * 5000,
    "\n",
    "&lt;b&gt;",
)
"""Tokens that would do harm if they were anything but text."""


@dataclass(frozen=True)
class Made:
    """A recording and its truth.

    Attributes:
        recording: the recording.
        path: where it is.
        weights: of each call [heads, queries, keys] in float64, NaN where nobody may look.
        pieces: the tokens that were recorded, of each text.
    """

    recording: Recording
    path: Path
    weights: list[NDArray[np.float64]]
    pieces: list[list[str]]

    @property
    def digest(self) -> str:
        return self.recording.digest


def made_book(path: Path, tokens: int = 600, heads: int = 3) -> Made:
    """Record two causal calls over a text with hostile tokens."""
    words = [f" word{number}" for number in range(tokens - len(HOSTILE))]
    pieces = [*words[:20], *HOSTILE, *words[20:]]
    chance = torch.Generator().manual_seed(7)
    calls: list[Any] = []
    weights: list[NDArray[np.float64]] = []
    for layer in range(2):
        query, key = (torch.randn(1, heads, tokens, 16, generator=chance) for _ in range(2))
        calls.append(
            AttentionCall.of(
                AttentionMatrix(query * 2, key, pattern=causal()),
                f"model.layers.{layer}.self_attn",
                index=layer,
            )
        )
        weights.append(_softmax(query[0] * 2, key[0], causal=True))
    # As GPT-2 writes tokens: what they stand for, byte by byte, is made from them again.
    title = "<b>A book</b>"
    recording = save(calls, path, tokens=pieces, model="toy", title=title, progress=False)
    return Made(recording, path, weights, [pieces])


def made_pair(path: Path) -> Made:
    """Record one call that looks at another text, which is shorter."""
    source, target = ([f" {name}{i}" for i in range(n)] for name, n in (("s", 40), ("t", 300)))
    chance = torch.Generator().manual_seed(8)
    query = torch.randn(1, 2, 300, 16, generator=chance)
    key = torch.randn(1, 2, 40, 16, generator=chance)
    matrix = AttentionMatrix(query, key)
    call = AttentionCall.of(matrix, "decoder.layers.0.encoder_attn", "cross", index=0)
    recording = save([call], path, tokens=target, source=source, model="toy", progress=False)
    return Made(recording, path, [_softmax(query[0], key[0], causal=False)], [source, target])


def _softmax(query: torch.Tensor, key: torch.Tensor, *, causal: bool) -> NDArray[np.float64]:
    query, key = query.double(), key.double()
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if not causal:
        return scores.softmax(dim=-1).numpy()
    later = torch.ones(scores.shape[-2:]).triu(1).bool()
    weights = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(later, torch.nan).numpy()


def counted_looks(made: Made, call: int, token: int, direction: str) -> NDArray[np.float64]:
    """Return the weights from a token, or at it, [heads, others]: 0 where a look does not count."""
    weights = np.nan_to_num(made.weights[call])
    found = (weights[:, token] if direction == "from" else weights[:, :, token]).copy()
    others = made.pieces[0 if direction == "from" else -1]
    found[:, [piece in ("🦜", "\n") for piece in others]] = 0.0
    if len(made.pieces) == 1:
        found[:, max(0, token - 2) : token + 3] = 0.0
    if direction == "from":
        found[:, 0] = 0.0
    return found


def pooled(weights: NDArray[np.float64], cell: int, pool: str) -> NDArray[np.float64]:
    """Return a map of cells: of the pairs that there are, forbidden ones count as 0.

    Args:
        weights: [queries, keys], NaN where nobody may look.
        cell: how many tokens a cell has along each axis.
        pool: "mean" or "max".

    Returns:
        [queries / cell, keys / cell], NaN where nobody may look at anything.
    """
    margins = [(0, -size % cell) for size in weights.shape]
    rows, columns = (-(-size // cell) for size in weights.shape)

    def cells(values: NDArray[Any], margin: float) -> NDArray[Any]:
        padded = np.pad(values, margins, constant_values=margin)
        return padded.reshape(rows, cell, columns, cell)

    filled = cells(np.nan_to_num(weights), 0.0)
    pairs = cells(np.ones(weights.shape), 0.0).sum(axis=(1, 3))
    found = filled.max(axis=(1, 3)) if pool == "max" else filled.sum(axis=(1, 3)) / pairs
    allowed = cells(~np.isnan(weights), False).any(axis=(1, 3))
    return np.where(allowed, found, np.nan)


def tile_of(cells: NDArray[np.float64], x: int, y: int) -> NDArray[np.float64]:
    """Return 256 × 256 cells of a map, NaN outside of it."""
    found = np.full((256, 256), np.nan)
    part = cells[y * 256 : (y + 1) * 256, x * 256 : (x + 1) * 256]
    found[: part.shape[0], : part.shape[1]] = part
    return found
