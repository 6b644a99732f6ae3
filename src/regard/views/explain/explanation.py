"""`explain`: attention step by step, from vectors to scores, weights and output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import default_scale
from regard.calls.call import AttentionCall
from regard.calls.tokens import label, readable
from regard.matrix import AttentionMatrix
from regard.matrix.scores import Scores
from regard.matrix.weights import Weights

Vector = Sequence[float] | Tensor
Vectors = Sequence[Sequence[float]] | Tensor

_NUMBERS = 4
"""Number of entries of a vector that are shown."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The steps of attention for one query.

    Attributes:
        tokens: the key tokens.
        asking: the query token.
        query: its query, [key_dim]. It is None with all numbers before the softmax, if only the
            weights are known.
        keys: the keys, [keys, key_dim].
        values: the values, [keys, value_dim], if known.
        scale: factor on the scores.
        scores: query · key, [keys].
        scaled: the input of the softmax, [keys].
        weights: the softmax, [keys].
        output: the weighted sum of the values, [value_dim], if known.
        notes: remarks.
    """

    tokens: Sequence[str]
    asking: str
    query: Float[Tensor, "key_dim"] | None
    keys: Float[Tensor, "keys key_dim"] | None
    values: Float[Tensor, "keys value_dim"] | None
    scale: float | None
    scores: Float[Tensor, "keys"] | None
    scaled: Float[Tensor, "keys"] | None
    weights: Float[Tensor, "keys"]
    output: Float[Tensor, "value_dim"] | None
    notes: Sequence[str] = ()

    def strongest(self, count: int) -> list[int]:
        """Return the indices of the keys with the largest weights, in the order of the text."""
        return sorted(self.weights.argsort(descending=True)[:count].tolist())

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        rows = [
            {
                "token": self.tokens[place],
                "key": None if self.keys is None else _numbers(self.keys[place]),
                "score": None if self.scores is None else _number(self.scores[place]),
                "scaled": None if self.scaled is None else _number(self.scaled[place]),
                "weight": _number(self.weights[place]),
                "value": None if self.values is None else _numbers(self.values[place]),
            }
            for place in range(len(self.tokens))
        ]
        return {
            "token": self.asking,
            "scaled_by": self.scale,
            "query": None if self.query is None else _numbers(self.query),
            "rows": rows,
            "output": None if self.output is None else _numbers(self.output),
            "notes": list(self.notes),
        }


def explain(
    tokens: Sequence[str],
    query: Vector,
    keys: Vectors,
    values: Vectors | None = None,
    *,
    asking: str = "",
    scale: float | None = None,
    notes: Sequence[str] = (),
) -> Explanation:
    """Compute attention for one query, step by step, in float64.

    scores = keys · query; weights = softmax(scale · scores); output = Σ weight · value.

    Args:
        tokens: the key tokens.
        query: [key_dim].
        keys: [keys, key_dim].
        values: [keys, value_dim], optional.
        asking: the query token.
        scale: factor on the scores, 1/√key_dim by default.
        notes: remarks.

    Raises:
        ValueError: the sizes don't fit together.

    >>> step = explain(["an", "apple"], [1.0, 0.0], [[0.0, 1.0], [2.0, 0.0]], scale=1.0)
    >>> step.scores, step.weights
    (tensor([0., 2.], dtype=torch.float64), tensor([0.1192, 0.8808], dtype=torch.float64))
    """
    q, k = (torch.as_tensor(x, dtype=torch.float64) for x in (query, keys))
    v = None if values is None else torch.as_tensor(values, dtype=torch.float64)
    if q.dim() != 1 or k.shape != (len(tokens), len(q)):
        raise ValueError(
            f"keys must have the shape [{len(tokens)} tokens, size of query], "
            f"got a query {list(q.shape)} and keys {list(k.shape)}"
        )
    if v is not None and (v.dim() != 2 or len(v) != len(tokens)):
        raise ValueError(
            f"values must have one vector per token ({len(tokens)}), got {list(v.shape)}"
        )
    scale = default_scale(len(q)) if scale is None else scale
    scores = k @ q
    scaled = scale * scores
    weights = scaled.softmax(dim=0)
    output = None if v is None else weights @ v
    return Explanation(list(tokens), asking, q, k, v, scale, scores, scaled, weights, output, notes)


def explain_call(
    call: AttentionCall,
    tokens: Sequence[str],
    token: int,
    *,
    head: int = 0,
    batch: int = 0,
    asking: str | None = None,
) -> Explanation:
    """Explain a query of a real model, in one head.

    Args:
        call: a watched call; watch with `values=True` to have the output too. Of a model that
            computes its softmax itself, only the weights are known.
        tokens: the tokens of its keys.
        token: index of the query.
        head: which head.
        batch: which sequence.
        asking: the query token; by default that of `tokens` at its position, in self-attention.

    Returns:
        An explanation with the allowed keys.

    Raises:
        ValueError: the number of tokens is not that of the keys, or the matrix was not kept.
        IndexError: there is no such token, head or sequence.
    """
    matrix = cast(AttentionMatrix, call.matrix[batch, head])
    num_queries, num_keys = matrix.shape
    if not -num_queries <= token < num_queries:
        raise IndexError(f"token must be an index of {num_queries} queries, got {token}")
    token %= num_queries
    if len(tokens) != num_keys:
        raise ValueError(f"tokens must have as many tokens as keys ({num_keys}), got {len(tokens)}")
    weights = cast(Tensor, matrix[token]).double().cpu()
    seen = weights > 0.0
    pieces = [label(piece) for piece in readable(tokens)]
    source = matrix.view.source
    if asking is None:
        place = int(source.positions(range(token, token + 1)))
        in_tokens = call.kind == "self" and 0 <= place < num_keys
        asking = pieces[place] if in_tokens else f"query {token}"
    names = [pieces[place] for place in seen.nonzero().flatten().tolist()]
    notes = _notes(call, head, num_keys - int(seen.sum()))
    if isinstance(source, Weights):
        return Explanation(
            names, asking, None, None, None, None, None, None, weights[seen], None, notes
        )

    parts = call.scores.call
    key_head = head // parts.group
    query = call.query[batch, head, token].double().cpu()
    keys = call.key[batch, key_head].double().cpu()[seen]
    values = None if parts.value is None else call.value[batch, key_head].double().cpu()[seen]
    # The input of the softmax: scores with bias and mask.
    lse = matrix[token : token + 1].lse.double().cpu()
    return Explanation(
        names,
        asking,
        query,
        keys,
        values,
        parts.scale,
        keys @ query,
        weights[seen].log() + lse,
        weights[seen],
        None if values is None else weights[seen] @ values,
        notes,
    )


def _notes(call: AttentionCall, head: int, hidden: int) -> list[str]:
    notes = [f"{call.module or 'the model'}, head {call.head_numbers[head]}"]
    if hidden:
        left = "1 token is" if hidden == 1 else f"{hidden} tokens are"
        notes.append(f"{left} left out: weight 0 or masked")
    source = call.source
    if not isinstance(source, Scores):
        notes.append("the model computes its softmax itself: only the weights are known")
        return notes
    if source.biased:
        notes.append("the scaled scores include the model's score bias")
    if source.call.sinks is not None:
        notes.append("a sink takes part of the softmax, so the weights sum to less than 1")
    return notes


def vector(numbers: Vector) -> str:
    """Return the first few entries of a vector as text.

    >>> vector([0.1, 0.25, 0.5, 1.0, 2.0])
    '[0.100, 0.250, 0.500, 1.000, …]'
    """
    shown = ", ".join(f"{number:.3f}" for number in numbers[:_NUMBERS])
    return f"[{shown}{', …' if len(numbers) > _NUMBERS else ''}]"


def _number(value: Tensor) -> float | None:
    """Return a number for JSON, with 7 significant digits; None for NaN."""
    return float(f"{value.item():.7g}") if bool(value.isfinite()) else None


def _numbers(values: Tensor) -> list[float | None]:
    return [_number(value) for value in values]
