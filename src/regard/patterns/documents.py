"""Documents packed into one sequence."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from regard.patterns.integers import RangeExtrema, as_tensor, whole_numbers
from regard.patterns.pattern import Bools, Covers, Ints, Pattern, Span, codes


@dataclass(frozen=True, eq=False)
class Documents(Pattern):
    """A position attends to its own document."""

    ids: Int[Tensor, "rows sequence"]
    batched: bool
    _run_starts: Tensor = field(init=False, repr=False)
    _run_ids: RangeExtrema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Consecutive equal ids form a run, and runs are few. Rows are concatenated.
        flat = self.ids.cpu().flatten()
        begins = torch.ones_like(flat, dtype=torch.bool)
        begins[1:] = flat[1:] != flat[:-1]
        begins[:: self.ids.shape[1]] = True
        starts = torch.nonzero(begins).flatten()
        object.__setattr__(self, "_run_starts", starts)
        object.__setattr__(self, "_run_ids", RangeExtrema(flat[starts], flat[starts]))

    @property
    def num_positions(self) -> int:
        return self.ids.shape[1]

    @property
    def batch_size(self) -> int | None:
        return len(self.ids) if self.batched else None

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        ids = self.ids.to(key.device)
        if not self.batched:
            return ids[0][query] == ids[0][key]
        return ids[batch, query] == ids[batch, key]

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        query_low, query_high = self._ids_in(batch, query)
        key_low, key_high = self._ids_in(batch, key)
        single_document = (query_low == query_high) & (key_low == key_high)
        return codes(
            none=(query_high < key_low) | (key_high < query_low),
            every=single_document & (query_low == key_low),
            batch=batch,
        )

    def _ids_in(self, batch: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        row = batch * self.ids.shape[1] if self.batched else torch.zeros_like(batch)
        first, last = (
            torch.searchsorted(self._run_starts, (row + end).contiguous(), right=True) - 1
            for end in span
        )
        return self._run_ids(first, last)

    def check(self, batch: int, queries: range, num_keys: int) -> None:
        if self.batched and batch != len(self.ids):
            raise ValueError(
                f"documents: ids must have one row per sequence, "
                f"got {len(self.ids)} rows for a batch of {batch}"
            )
        if self.ids.shape[1] != num_keys:
            raise ValueError(
                f"documents: ids must have one id per key ({num_keys}), got {self.ids.shape[1]}"
            )
        if queries and (queries[0] < 0 or queries[-1] >= num_keys):
            raise ValueError(
                f"documents: query positions must be from 0 to {num_keys - 1}, "
                f"got {queries[0]} to {queries[-1]}"
            )

    def __repr__(self) -> str:
        rows = f"{len(self.ids)} × " if self.batched else ""
        return f"documents({rows}{self.ids.shape[1]} ids)"


def documents(
    ids: Sequence[int] | Sequence[Sequence[int]] | Int[Tensor, "sequence"] | Int[Tensor, "b n"],
) -> Pattern:
    """Let each position attend to its own document only (packed sequences).

    >>> print(documents([0, 0, 1, 1, 1]).draw(5))
    ■ ■ · · ·
    ■ ■ · · ·
    · · ■ ■ ■
    · · ■ ■ ■
    · · ■ ■ ■

    Args:
        ids: document id of each position, [sequence] or [batch, sequence]. Any integers; documents
            need not be contiguous, but only contiguous ones save work.
    """
    values = whole_numbers(ids)
    if values is None or values.dim() not in (1, 2) or values.numel() == 0:
        got = as_tensor(ids)
        raise ValueError(
            "documents: ids must be integers, [sequence] or [batch, sequence] and not empty, "
            f"got shape {list(got.shape)} of {got.dtype}"
        )
    return Documents(torch.atleast_2d(values), batched=values.dim() == 2)
