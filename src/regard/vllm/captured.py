"""The steps of one request in one layer, joined to one call."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import Attention, detached
from regard.calls.call import AttentionCall, layer_index
from regard.calls.check import EMPTY, NOT_COMPARED, Check, row_gaps, tolerance
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.vllm.layer import WatchedLayer

_CHUNK = 1 << 24
"""Number of weights computed at a time for a check."""


@dataclass(frozen=True)
class Keeping:
    """Options for the kept tensors of a request.

    Attributes:
        check: whether to compare rows with the output of the engine.
        values: whether calls have values.
        offload: device to move tensors to; None to leave them where they are.
    """

    check: bool = True
    values: bool = False
    offload: str | None = None


@dataclass(eq=False)
class Captured:
    """The tokens that one layer computed for one request.

    Attributes:
        layer: the layer.
        keeping: options for the kept tensors.
        first_query: position of the first query: after the prompt's cached prefix, if it has one.
        num_tokens: number of tokens whose keys are known.
    """

    layer: WatchedLayer
    keeping: Keeping
    first_query: int = 0
    num_tokens: int = 0
    _prefix: Tensor | None = None
    """Keys and values before the first query, [tokens, 2 · key_heads, key_dim]."""
    _rows: list[Tensor] = field(default_factory=list[Tensor])
    """Of each step keys, values, queries and outputs, [tokens, all their heads, key_dim]."""
    _compared: list[int] = field(default_factory=list[int])

    def add(
        self,
        query: Float[Tensor, "tokens heads key_dim"],
        key: Float[Tensor, "tokens key_heads key_dim"],
        value: Float[Tensor, "tokens key_heads key_dim"],
        output: Float[Tensor, "tokens heads key_dim"],
        compared: list[int],
    ) -> None:
        """Add the step that follows the last one.

        Args:
            query: queries of the step.
            key: keys of the step.
            value: values of the step.
            output: output of the engine.
            compared: positions of the rows to compare with the output.
        """
        # One copy: the engine overwrites its tensors in the next step.
        parts = [key, value, query, output] if self.keeping.check else [key, value, query]
        rows = torch.cat(parts, dim=1)
        self._rows.append(rows if self.keeping.offload is None else rows.to(self.keeping.offload))
        self._compared += compared
        self.num_tokens += len(query)

    def first_missing(self, position: int) -> int:
        """Return the first token whose key is to be read from the cache, to continue there."""
        reach = self.layer.reach
        return 0 if reach is None else max(0, position - reach)

    def restart(self, pairs: Float[Tensor, "tokens two_key_heads key_dim"], position: int) -> None:
        """Continue at a position that does not follow the last step.

        The engine has found a prefix in its cache, or has preempted the request and computes some
        of its tokens again. Earlier keys may come from another request by now, so they are read
        from the cache.

        Args:
            pairs: the keys and values before the position that can be attended to.
            position: position of the next token.
        """
        if self.keeping.offload is not None:
            pairs = pairs.to(self.keeping.offload)
        known = self._pairs()[: position - len(pairs)] if self.num_tokens else pairs[:0]
        # Out of reach of every query from here on.
        unknown = pairs.new_zeros(position - len(pairs) - len(known), *pairs.shape[1:])
        pairs = torch.cat([known, unknown, pairs])
        if self.first_query < position <= self.num_tokens:
            rows = torch.cat(self._rows)[: position - self.first_query]
            rows[:, : pairs.shape[1]] = pairs[self.first_query :]
            self._rows = [rows]
        else:
            self._rows, self.first_query = [], position
        self._prefix = pairs[: self.first_query]
        self._compared = [row for row in self._compared if self.first_query <= row < position]
        self.num_tokens = position

    def _pairs(self) -> Float[Tensor, "tokens two_key_heads key_dim"]:
        """Return all keys and values."""
        num_heads = 2 * self.layer.module.num_kv_heads
        parts = [rows[:, :num_heads] for rows in self._rows]
        return torch.cat(parts if self._prefix is None else [self._prefix, *parts])

    def joined(self) -> "_Joined":
        """Return the tensors of all steps."""
        layer, sinks = self.layer, self.layer.sinks
        heads, key_heads = layer.module.num_heads, layer.module.num_kv_heads
        key, value = _by_heads(self._pairs()).split(key_heads, dim=1)
        rows = _by_heads(torch.cat([part[:, 2 * key_heads :] for part in self._rows]))
        query, output = rows[:, :heads], rows[:, heads:]
        call = Attention(
            query=query,
            key=key,
            value=value if self.keeping.values else None,
            pattern=layer.pattern,
            bias=layer.bias,
            scale=layer.scale,
            sinks=None if sinks is None else sinks.to(query.device),
            positions=range(self.first_query, self.first_query + query.shape[2]),
        )
        # A view would keep the whole tensor.
        source = Scores(call.kept(partial(detached, copy=True)))
        rows = torch.tensor(self._compared) - self.first_query
        return _Joined(source, value, output, rows)

    def call(self, index: int, source: Scores, check: Check) -> AttentionCall:
        """Return one call for all steps."""
        _, heads, queries, keys = source.shape
        return self._call(
            index,
            batch=1,
            heads=heads,
            key_heads=source.call.key.shape[1],
            queries=queries,
            keys=keys,
            dtype=source.call.query.dtype,
            pattern=self.layer.pattern,
            check=check,
            view=View.whole(source),
        )

    def failed(self, index: int, problem: str) -> AttentionCall:
        """Return a call that has a problem instead of a matrix."""
        return self._call(index, problem=problem)

    def _call(self, index: int, **more: Any) -> AttentionCall:
        name = self.layer.name
        return AttentionCall(
            index=index,
            module=name,
            kind="self",
            layer=layer_index(name),
            kernel=self.layer.kernel,
            **more,
        )


@dataclass(frozen=True)
class _Joined:
    """The tensors of a layer for all steps.

    Attributes:
        source: its scores.
        value: its values, [1, key_heads, keys, key_dim].
        output: the output of the engine, [1, heads, queries, key_dim].
        compared: the rows to compare with the output, [rows].
    """

    source: Scores
    value: Tensor
    output: Tensor
    compared: Int[Tensor, "rows"]

    @property
    def kind(self) -> tuple[Any, ...]:
        """What layers that are compared together have in common."""
        source, call = self.source, self.source.call
        sizes = (source.shape, source.call.key.shape, source.call.query.dtype)
        positions = (call.first_position, *self.compared.tolist())
        alone = id(self) if source.biased or call.sinks is not None else None
        return call.pattern, call.scale, sizes, positions, alone


def joined_calls(layers: Sequence[Captured]) -> list[AttentionCall]:
    """Return one call of each layer for all steps, compared with the output of the engine."""
    parts = [one.joined() for one in layers]
    checks = [NOT_COMPARED] * len(parts)
    if layers and layers[0].keeping.check:
        by_kind: dict[tuple[Any, ...], list[int]] = {}
        for index, part in enumerate(parts):
            by_kind.setdefault(part.kind, []).append(index)
        for same in by_kind.values():
            for index, check in zip(same, _checks([parts[i] for i in same]), strict=True):
                checks[index] = check
    together = zip(layers, parts, checks, strict=True)
    return [
        one.call(index, part.source, check) for index, (one, part, check) in enumerate(together)
    ]


def _checks(parts: Sequence[_Joined]) -> list[Check]:
    """Compare rows of every step with the output of the engine, in several layers of a kind."""
    source, compared = parts[0].source, parts[0].compared
    _, heads, _, keys = source.shape
    if not len(compared) or not keys:
        return [EMPTY] * len(parts)
    most_rows = max(1, _CHUNK // (heads * keys))
    at_once = max(1, most_rows // len(compared))
    gaps: list[Tensor] = []
    for start in range(0, len(parts), at_once):
        some = parts[start : start + at_once]
        # Layers as the sequences of a batch: small operations take as long as larger ones.
        key = torch.cat([part.source.whole_key for part in some])
        value = torch.cat([part.value for part in some])
        found: list[Tensor] = []
        for rows in compared.split(most_rows):
            here = rows.to(source.device)
            query = torch.cat([part.source.whole_query[:, :, here] for part in some])
            output = torch.cat([part.output[:, :, here] for part in some])
            positions = source.positions(rows)
            of_rows = replace(source.call, query=query, key=key, positions=positions, value=None)
            found.append(
                row_gaps(Scores(of_rows), value, output, range(len(rows))).amax(dim=(1, 2))
            )
        gaps.append(torch.stack(found).amax(dim=0))
    allowed = tolerance(parts[0].output.dtype)
    return [Check(gap, allowed) for gap in torch.cat(gaps)]


def _by_heads(rows: Float[Tensor, "tokens heads key_dim"]) -> Float[Tensor, "1 heads tokens dim"]:
    return rows.transpose(0, 1)[None]
