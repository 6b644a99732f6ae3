"""Padding masks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.integers import whole_numbers
from regard.patterns.pattern import Bools, Covers, Ints, Pattern, Span, codes

_ENDLESS = torch.iinfo(torch.int64).max


@dataclass(frozen=True, eq=False)
class Padding(Pattern):
    """In sequence b every position attends to positions `starts[b]` … `stops[b]` − 1."""

    starts: Int[Tensor, "batch"]
    stops: Int[Tensor, "batch"]

    key_only = True

    @property
    def batch_size(self) -> int:
        return len(self.starts)

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        starts, stops = self.starts.to(key.device), self.stops.to(key.device)
        return (key >= starts[batch]) & (key < stops[batch])

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        start, stop = self.starts.to(batch.device)[batch], self.stops.to(batch.device)[batch]
        return codes(
            none=(key.last < start) | (key.first >= stop) | (start >= stop),
            every=(key.first >= start) & (key.last < stop),
            batch=batch,
        )

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        if batch != self.batch_size:
            raise ValueError(
                f"padding: lengths or starts must have one entry per sequence, "
                f"got {self.batch_size} for a batch of {batch}"
            )
        last = int(self.stops.where(self.stops != _ENDLESS, 0).max())
        if last > num_keys:
            raise ValueError(
                f"padding: sequences must end within the keys ({num_keys}), got an end at {last}"
            )

    def __repr__(self) -> str:
        starts = f"starts={self.starts.tolist()}"
        if bool((self.stops == _ENDLESS).any()):
            return f"padding({starts})"
        lengths = (self.stops - self.starts).tolist()
        return f"padding({lengths}, {starts})" if bool(self.starts.any()) else f"padding({lengths})"


def padding(
    lengths: Sequence[int] | Int[Tensor, "batch"] | None = None,
    *,
    starts: Sequence[int] | Int[Tensor, "batch"] | None = None,
) -> Pattern:
    """Mask the padding of each sequence: keys only, not queries.

    >>> print(padding([2, 3]).draw(3))
    ■ ■ ·
    ■ ■ ·
    ■ ■ ·
    <BLANKLINE>
    ■ ■ ■
    ■ ■ ■
    ■ ■ ■

    For left padding, as in generation, pass where the sequences start; it holds for tokens that
    are added later too.

    >>> print(padding(starts=[1]).draw(3))
    · ■ ■
    · ■ ■
    · ■ ■

    Args:
        lengths: number of real positions of each sequence, [batch]; all after its start by default.
        starts: first real position of each sequence, [batch]; 0 by default.
    """
    if lengths is None:
        if starts is None:
            raise ValueError("padding: pass lengths, or starts for left padding")
        firsts = _checked("starts", starts)
        return Padding(firsts, torch.full_like(firsts, _ENDLESS))
    counts = _checked("lengths", lengths)
    firsts = torch.zeros_like(counts) if starts is None else _checked("starts", starts)
    if len(counts) != len(firsts):
        raise ValueError(
            "padding: lengths and starts must have the same number of sequences, "
            f"got {len(counts)} and {len(firsts)}"
        )
    return Padding(firsts, firsts + counts)


def _checked(name: str, value: object) -> Int[Tensor, "batch"]:
    values = whole_numbers(value)
    if values is None or values.dim() != 1 or len(values) == 0:
        got = repr(value)
        if isinstance(value, Tensor):
            got = (
                f"a tensor of {value.dtype} and shape {list(value.shape)}; for a right-padded mask "
                "with 1 for real tokens, pass mask.sum(-1)"
            )
        raise ValueError(f"padding: {name} must be a list of integers, one per sequence, got {got}")
    if int(values.min()) < 0:
        raise ValueError(f"padding: {name} must be at least 0, got {int(values.min())}")
    return values
