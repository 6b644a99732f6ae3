"""Attention written out, in which heads get a part of another run: what `patch` must give."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.interventions.oracle import Oracle


@dataclass(frozen=True)
class DonorOracle(Oracle):
    """A model whose heads get parts of an earlier run, if `part` is given; else the run is kept.

    Attributes:
        kept: by module, queries, keys, values and outputs of the earlier run, with as many key
            heads as heads.
        part: which of these the heads get, or "weights".
        patched: pairs of a module's path and a head.
        at: the position in the earlier run of each position that is patched; None for all.
    """

    kept: dict[str, dict[str, Tensor]] = field(default_factory=dict[str, dict[str, Tensor]])
    part: str = ""
    patched: Sequence[tuple[str, int]] = ()
    at: Mapping[int, int] | None = None

    @contextmanager
    def getting(
        self, part: str, patched: Sequence[tuple[str, int]], at: Any = None
    ) -> Iterator[None]:
        with DonorOracle(self.model, kept=self.kept, part=part, patched=patched, at=at).running():
            yield

    def _attention(
        self,
        name: str,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *args: Any,
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        parts = {"query": query, "key": key, "value": value}

        def run() -> tuple[Tensor, Tensor]:
            inputs = (parts["query"], parts["key"], parts["value"])
            return Oracle._attention(self, name, module, *inputs, mask, *args, **options)

        heads = [head for layer, head in self.patched if layer == name]
        if not self.part:
            output, weights = run()
            self.kept[name] = {**parts, "output": output.transpose(1, 2)}
            return output, weights
        if not heads:
            return run()
        if self.part in parts:
            parts[self.part] = self._changed(name, self.part, parts[self.part], heads)
            return run()
        output, weights = run()
        output = output.transpose(1, 2)
        if self.part == "output":
            output = self._changed(name, "output", output, heads)
        else:
            rows = range(self.kept[name]["query"].shape[2]) if self.at is None else self.at
            rows = [row for row in rows if row < query.shape[2]]
            for side in ("query", "key"):
                # Keys behind the other text are masked for its queries, those of a later step here.
                old = self.kept[name][side][:, :, : parts[side].shape[2]]
                extra = parts[side].shape[2] - old.shape[2]
                parts[side] = torch.nn.functional.pad(old, (0, 0, 0, extra)).expand_as(parts[side])
            others, other_weights = run()
            output, weights = output.clone(), weights.clone()
            for head in heads:
                output[:, head, [*rows]] = others.transpose(1, 2)[:, head, [*rows]]
                weights[:, head, [*rows]] = other_weights[:, head, [*rows]]
        return output.transpose(1, 2).contiguous(), weights

    def _changed(self, name: str, part: str, tensor: Tensor, heads: Sequence[int]) -> Tensor:
        other = self.kept[name][part].detach()
        moves = {row: row for row in range(other.shape[2])} if self.at is None else self.at
        # Positions that a text does not have yet are patched later.
        moves = {here: there for here, there in moves.items() if here < tensor.shape[2]}
        changed = tensor.clone()
        for head in heads:
            changed[:, head, [*moves]] = other[:, head, [*moves.values()]]
        return changed
