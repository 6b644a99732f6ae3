"""A pattern from a boolean mask."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.patterns.integers import is_consecutive
from regard.patterns.pattern import Bools, Covers, Everyone, Ints, Pattern, Span, codes


@dataclass(frozen=True, eq=False)
class FromMask(Pattern):
    """Read allowed pairs from a boolean mask."""

    mask: Bool[Tensor, "rows queries keys"]
    batched: bool

    @cached_property
    def _counts(self) -> Int[Tensor, "rows queries_and_1 keys_and_1"]:
        """The number of allowed pairs above i and left of j, at [b, i, j]."""
        dtype = torch.int32 if self.mask[0].numel() < 2**31 else torch.int64
        rows, queries, keys = self.mask.shape
        counts = torch.zeros(rows, queries + 1, keys + 1, dtype=dtype, device="cpu")
        # In place: this is four bytes a pair, and would be twelve while it is made.
        counts[:, 1:, 1:].copy_(self.mask).cumsum_(1).cumsum_(2)
        return counts

    @cached_property
    def share_of_blocks(self) -> float:
        """The share of blocks of 64 × 32 pairs with an allowed pair."""
        rows, queries, keys = self.mask.shape
        padded = torch.nn.functional.pad(self.mask, (0, -keys % 32, 0, -queries % 64))
        in_keys = padded.view(rows, -1, padded.shape[2] // 32, 32).any(dim=3)
        return float(in_keys.view(rows, -1, 64, in_keys.shape[2]).any(dim=2).float().mean())

    @property
    def num_positions(self) -> int:
        return self.mask.shape[2]

    @property
    def batch_size(self) -> int | None:
        return len(self.mask) if self.batched else None

    @property
    def _first_query(self) -> int:
        return self.mask.shape[2] - self.mask.shape[1]

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        mask = self.mask.to(key.device)
        row = query - self._first_query
        return mask[batch, row, key] if self.batched else mask[0][row, key]

    def dense(
        self, query_positions: Int[Tensor, "queries"], num_keys: int
    ) -> Bool[Tensor, "batch_or_1 queries keys"]:
        mask = self.mask.to(query_positions.device)[..., :num_keys]
        rows = query_positions - self._first_query
        has_all_rows = len(rows) == mask.shape[1] and is_consecutive(rows)
        return mask if has_all_rows else mask[:, rows]

    def simplified(self, queries: range, num_keys: int) -> Pattern:
        rows = self.mask[:, queries[0] - self._first_query : queries[-1] + 1 - self._first_query]
        return Everyone() if bool(rows.all()) else self

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        row = batch if self.batched else torch.zeros_like(batch)
        top, bottom = query.first - self._first_query, query.last - self._first_query + 1
        left, right = key.first, key.last + 1
        allowed = (
            self._counts[row, bottom, right]
            - self._counts[row, top, right]
            - self._counts[row, bottom, left]
            + self._counts[row, top, left]
        )
        return codes(allowed == 0, allowed == (bottom - top) * (right - left), batch)

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        if self.batched and batch != len(self.mask):
            raise ValueError(
                f"from_mask: mask must have one entry per sequence, "
                f"got {len(self.mask)} for a batch of {batch}"
            )
        first, stop = self._first_query, self.mask.shape[2]
        if num_keys != stop:
            raise ValueError(
                f"from_mask: mask must have one column per key ({num_keys}), got {stop}"
            )
        if queries and (queries[0] < first or queries[-1] >= stop):
            raise ValueError(
                f"from_mask: mask has rows for positions {first} to {stop - 1}, "
                f"got queries at {queries[0]} to {queries[-1]}"
            )

    def __repr__(self) -> str:
        return f"from_mask({' × '.join(str(size) for size in self.mask.shape[not self.batched :])})"


def from_mask(mask: Bool[Tensor, "queries keys"] | Bool[Tensor, "batch queries keys"]) -> Pattern:
    """Make a pattern from a boolean mask, `True` meaning *may attend*.

    Prefer other patterns: this one holds a value for every pair. The last row has the position of
    the last key.

    >>> print(from_mask(torch.tensor([[True, False, True], [False, False, True]])).draw(2, 3))
    ■ · ■
    · · ■

    Args:
        mask: [queries, keys] or [batch, queries, keys].
    """
    if mask.dtype != torch.bool or mask.dim() not in (2, 3) or mask.numel() == 0:
        raise ValueError(
            "from_mask: mask must be a boolean tensor, [queries, keys] or [batch, queries, keys], "
            f"and not empty, got {mask.dtype} of shape {list(mask.shape)}"
        )
    values = mask.detach().clone()
    return FromMask(values if mask.dim() == 3 else values[None], batched=mask.dim() == 3)
