"""The steps of one request in one layer, joined to one call.

The engine computes the prompt in one or several steps, and each generated token in a step of its
own. Of each step, the new rows are kept:

    position     0 1 2 │ 3 4 5 6 │ 7 │ 8 │ …
                 prefix   prompt   generated
    keys, values  read │ kept    │   │   │      a row and a column of the matrix for each position,
    queries            │ kept    │   │   │      but no row of the prefix, which was computed before
    outputs            │ kept    │   │   │      until they are compared

A step that does not begin where the last one ended follows a prefix that was found in the cache, or
a preemption, after which the engine computes tokens again. The keys before it are then read from
the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import detached
from regard.calls.call import AttentionCall
from regard.calls.check import EMPTY, NOT_COMPARED, Check, ComparedRows, largest_gaps, tolerance
from regard.calls.options import Options
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.vllm.layer import WatchedLayer


@dataclass(eq=False)
class Captured:
    """The tokens that one layer computed for one request.

    Attributes:
        layer: the layer.
        options: options of the watcher.
        first_query: position of the first query: after the prompt's cached prefix, if it has one.
        num_tokens: number of tokens whose keys are known.
    """

    layer: WatchedLayer
    options: Options
    first_query: int = 0
    num_tokens: int = 0
    _prefix: Tensor | None = None
    """Keys and values before the first query, [tokens, 2 · key_heads, key_dim]."""
    _rows: list[Tensor] = field(default_factory=list[Tensor])
    """Of each step keys, values, queries and outputs, [tokens, all their heads, key_dim]."""
    _compared: list[int] = field(default_factory=list[int])
    """Positions of the rows to compare with the output."""

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
        parts = [key, value, query, output] if self.options.check else [key, value, query]
        self._rows.append(self._moved(torch.cat(parts, dim=1)))
        self._compared += compared
        self.num_tokens += len(query)

    def first_missing(self, position: int) -> int:
        """Return the first token whose key is to be read from the cache, to continue there."""
        reach = self.layer.reach
        return 0 if reach is None else max(0, position - reach)

    def restart(self, pairs: Float[Tensor, "tokens two_key_heads key_dim"], position: int) -> None:
        """Continue at a position that does not follow the last step.

        Earlier keys may come from another request by now, so they are read from the cache.

        Args:
            pairs: the keys and values before the position that can be attended to.
            position: position of the next token.
        """
        # 1. Keys and values of all positions before: known, out of reach of every query from here
        #    on, read from the cache.
        pairs = self._moved(pairs)
        known = self._pairs()[: position - len(pairs)] if self.num_tokens else pairs[:0]
        unreachable = pairs.new_zeros(position - len(pairs) - len(known), *pairs.shape[1:])
        pairs = torch.cat([known, unreachable, pairs])

        # 2. Rows before the position stay, with these keys; if there are none, all is prefix.
        if self.first_query < position <= self.num_tokens:
            rows = torch.cat(self._rows)[: position - self.first_query]
            rows[:, : pairs.shape[1]] = pairs[self.first_query :]
            self._rows = [rows]
        else:
            self._rows, self.first_query = [], position
        self._prefix = pairs[: self.first_query]
        self._compared = [row for row in self._compared if self.first_query <= row < position]
        self.num_tokens = position

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor if self.options.offload is None else tensor.to(self.options.offload)

    def _pairs(self) -> Float[Tensor, "tokens two_key_heads key_dim"]:
        """Return all keys and values."""
        num_heads = 2 * self.layer.num_key_heads
        parts = [rows[:, :num_heads] for rows in self._rows]
        return torch.cat(parts if self._prefix is None else [self._prefix, *parts])

    def joined(self) -> tuple[Scores, ComparedRows]:
        """Return the scores of all steps, and the rows to compare with the output."""
        # 1. The tensors of all steps.
        attention, num_key_heads = self.layer.attention, self.layer.num_key_heads
        key, value = _by_heads(self._pairs()).split(num_key_heads, dim=1)
        rows = _by_heads(torch.cat([part[:, 2 * num_key_heads :] for part in self._rows]))
        query, output = rows[:, : attention.num_heads], rows[:, attention.num_heads :]
        call = replace(
            attention,
            query=query,
            key=key,
            value=value,
            sinks=None if attention.sinks is None else attention.sinks.to(query.device),
            positions=range(self.first_query, self.num_tokens),
        )

        # 2. The compared rows.
        positions = torch.tensor(self._compared, dtype=torch.int64, device="cpu")
        chosen = positions - self.first_query
        compared = replace(call, query=query[:, :, chosen], positions=positions)

        # 3. The kept tensors: copies, since views would keep all of `rows`.
        kept = replace(call, value=value if self.options.values else None)
        source = Scores(kept.kept(partial(detached, copy=True)))
        return source, ComparedRows(compared, output[:, :, chosen])


def joined_calls(layers: Sequence[Captured]) -> list[AttentionCall]:
    """Return one call of each layer for all steps, compared with the output of the engine."""
    joined = [captured.joined() for captured in layers]
    compared = [rows for _, rows in joined]
    checks = [NOT_COMPARED] * len(layers)
    if layers and layers[0].options.check:
        checks = _checks(compared)
    return [
        _call(captured.layer, source, check)
        for captured, (source, _), check in zip(layers, joined, checks, strict=True)
    ]


def _checks(compared: Sequence[ComparedRows]) -> list[Check]:
    """Compare rows with the output of the engine, of the same steps in each layer."""
    if not all(rows.output.numel() for rows in compared):
        return [EMPTY] * len(compared)
    gaps = largest_gaps(compared)
    return [
        Check(gap, tolerance(rows.output.dtype)) for gap, rows in zip(gaps, compared, strict=True)
    ]


def _call(layer: WatchedLayer, source: Scores, check: Check) -> AttentionCall:
    batch, heads, queries, keys = source.shape
    return replace(
        layer.call,
        batch=batch,
        heads=heads,
        key_heads=layer.num_key_heads,
        queries=queries,
        keys=keys,
        dtype=source.call.query.dtype,
        pattern=source.call.pattern,
        check=check,
        view=View.whole(source),
    )


def _by_heads(rows: Float[Tensor, "tokens heads dim"]) -> Float[Tensor, "1 heads tokens dim"]:
    return rows.transpose(0, 1)[None]
