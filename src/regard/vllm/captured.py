"""The steps of one request in one layer, joined to one call."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.call import AttentionCall, layer_in
from regard.calls.check import NOT_COMPARED, Check, check_scores, worst
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

    def call(self, index: int) -> AttentionCall:
        """Return one call for all steps."""
        layer, sinks = self.layer, self.layer.sinks
        heads, key_heads = layer.module.num_heads, layer.module.num_kv_heads
        key, value = _by_heads(self._pairs()).split(key_heads, dim=1)
        rows = _by_heads(torch.cat([part[:, 2 * key_heads :] for part in self._rows]))
        query, output = rows[:, :heads], rows[:, heads:]
        source = Scores(
            # Copies: a view would keep the whole tensor.
            query.clone(),
            key.clone(),
            layer.pattern,
            layer.bias,
            layer.scale,
            None if sinks is None else sinks.to(query.device),
            self.first_query,
            value=value.clone() if self.keeping.values else None,
        )
        check = self._check(source, value, output, index) if self.keeping.check else NOT_COMPARED
        return self._call(
            index,
            batch=1,
            heads=heads,
            key_heads=key_heads,
            queries=query.shape[2],
            keys=key.shape[2],
            dtype=query.dtype,
            pattern=layer.pattern,
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
            layer=layer_in(name),
            kernel=self.layer.kernel,
            **more,
        )

    def _check(
        self,
        source: Scores,
        value: Float[Tensor, "1 key_heads keys key_dim"],
        output: Float[Tensor, "1 heads queries key_dim"],
        index: int,
    ) -> Check:
        """Compare rows of every step with the output of the engine."""
        _, heads, _, keys = source.shape
        checks: list[Check] = []
        for positions in torch.tensor(self._compared).split(max(1, _CHUNK // (heads * keys))):
            rows = (positions - self.first_query).to(source.device)
            some = replace(
                source, query=source.whole_query[:, :, rows], query_positions=positions, value=None
            )
            checks.append(check_scores(some, value, output[:, :, rows], index, every_row=True))
        return worst(checks)


def _by_heads(rows: Float[Tensor, "tokens heads key_dim"]) -> Float[Tensor, "1 heads tokens dim"]:
    return rows.transpose(0, 1)[None]
