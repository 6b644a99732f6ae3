"""What a layer computed for one request, step by step, joined to one call."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.call import AttentionCall, layer_in
from regard.calls.check import NOT_COMPARED, Check, check_scores, sampled_rows, worst
from regard.matrix.index import as_tensor
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.vllm.layer import WatchedLayer

_CHUNK = 1 << 24
"""How many weights are computed together for a check."""


@dataclass(frozen=True)
class Keeping:
    """What is kept of a request.

    Attributes:
        check: whether to compare rows with the output of the engine.
        values: whether calls have values.
        offload: device to move tensors to; None to leave them where they are.
    """

    check: bool = True
    values: bool = False
    offload: str | None = None

    @property
    def needs_values(self) -> bool:
        """Whether values are taken down at all."""
        return self.check or self.values

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy: the engine writes over its own tensors in the next step."""
        copied = tensor.detach().clone()
        return copied if self.offload is None else copied.to(self.offload)


@dataclass(frozen=True)
class Step:
    """What a layer computed for a request in one step.

    Attributes:
        query: [tokens, heads, key_dim].
        key: [tokens, key_heads, key_dim].
        value: [tokens, key_heads, key_dim].
        output: [tokens, heads, key_dim].
        position: position of the first of these tokens in the request.
    """

    query: Float[Tensor, "tokens heads key_dim"]
    key: Float[Tensor, "tokens key_heads key_dim"]
    value: Float[Tensor, "tokens key_heads key_dim"]
    output: Float[Tensor, "tokens heads key_dim"]
    position: int


@dataclass(eq=False)
class Captured:
    """Queries, keys and sampled outputs of one layer for one request.

    Attributes:
        layer: the layer.
        keeping: what is kept.
        first_query: position of the first query: after the prompt's cached prefix, if it has one.
        num_tokens: number of tokens whose keys are known.
    """

    layer: WatchedLayer
    keeping: Keeping
    first_query: int = 0
    num_tokens: int = 0
    _query: list[Tensor] = field(default_factory=list[Tensor])
    _key: list[Tensor] = field(default_factory=list[Tensor])
    _value: list[Tensor] = field(default_factory=list[Tensor])
    _output: list[Tensor] = field(default_factory=list[Tensor])
    _output_positions: list[int] = field(default_factory=list[int])

    def first_missing(self, position: int) -> int:
        """Return the first token whose key must be read from the cache before a step.

        Args:
            position: position of the step's first token.
        """
        if position == self.num_tokens:
            return position
        reach = self.layer.reach
        return 0 if reach is None else max(0, position - reach)

    def restart(self, pairs: Float[Tensor, "2 tokens key_heads key_dim"], position: int) -> None:
        """Go on from a position that does not follow the last step.

        A prefix was found in the cache, or the engine has preempted the request and computes some
        of its tokens again: with keys that may be another request's, so they are read again.

        Args:
            pairs: keys and values before the position, as many as matter, from the cache.
            position: position of the next token.
        """
        key, value = (
            self._rewritten(parts, read, position)
            for parts, read in zip((self._key, self._value), pairs, strict=True)
        )
        self._key, self._value = [key], [value] if self.keeping.needs_values else []
        kept = max(0, position - self.first_query) if position <= self.num_tokens else 0
        if kept:
            self._query = [torch.cat(self._query)[:kept]]
            count = sum(one < position for one in self._output_positions)
        else:
            self._query, self.first_query, count = [], position, 0
        if self._output:
            self._output = [torch.cat(self._output)[:count]]
        self._output_positions = self._output_positions[:count]
        self.num_tokens = position

    def _rewritten(self, parts: Sequence[Tensor], read: Tensor, position: int) -> Tensor:
        """Return keys before a position: those read, after earlier ones, which may be unknown."""
        read = self.keeping.copy(read)
        known = torch.cat([*parts, read[:0]])[: position - len(read)]
        # Out of reach of every query from here on.
        unknown = read.new_zeros(position - len(read) - len(known), *read.shape[1:])
        return torch.cat([known, unknown, read])

    def add(self, step: Step) -> None:
        """Take a step down that follows the last one."""
        assert step.position == self.num_tokens
        copy, num_new = self.keeping.copy, len(step.query)
        self._query.append(copy(step.query))
        self._key.append(copy(step.key))
        if self.keeping.needs_values:
            self._value.append(copy(step.value))
        if self.keeping.check:
            rows = as_tensor(sampled_rows(num_new, step.position))
            self._output.append(copy(step.output[rows.to(step.output.device)]))
            self._output_positions += (rows + step.position).tolist()
        self.num_tokens += num_new

    def call(self, index: int) -> AttentionCall:
        """Return one call for all steps."""
        layer = self.layer
        query, key = _joined(self._query), _joined(self._key)
        value = _joined(self._value) if self.keeping.needs_values else None
        sinks = layer.sinks
        source = Scores(
            query,
            key,
            layer.pattern,
            layer.bias,
            layer.scale,
            None if sinks is None else sinks.to(query.device),
            self.first_query,
            value=value,
        )
        check = self._check(source, index)
        if not self.keeping.values:
            source = replace(source, value=None)
        batch, heads, queries, keys = source.shape
        return AttentionCall(
            index=index,
            module=layer.name,
            kind="self",
            layer=layer_in(layer.name),
            kernel=layer.kernel,
            batch=batch,
            heads=heads,
            key_heads=key.shape[1],
            queries=queries,
            keys=keys,
            dtype=query.dtype,
            pattern=layer.pattern,
            check=check,
            view=View.whole(source),
        )

    def _check(self, source: Scores, index: int) -> Check:
        """Compare rows of every step with the output of the engine."""
        if not self.keeping.check:
            return NOT_COMPARED
        assert source.value is not None
        _, heads, _, keys = source.shape
        positions, outputs = torch.tensor(self._output_positions), torch.cat(self._output)
        checks: list[Check] = []
        size = max(1, _CHUNK // (heads * keys))
        for some, output in zip(positions.split(size), outputs.split(size), strict=True):
            rows = replace(
                source,
                query=source.whole_query[:, :, (some - self.first_query).to(source.device)],
                query_positions=some,
            )
            given = output.transpose(0, 1)[None]
            checks.append(check_scores(rows, source.value, given, index, every_row=True))
        return worst(checks)


def _joined(parts: Sequence[Tensor]) -> Float[Tensor, "1 heads tokens dim"]:
    """Return the tokens of all steps in one tensor."""
    return torch.cat(list(parts)).transpose(0, 1)[None].contiguous()
