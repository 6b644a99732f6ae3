"""`explain`: attention number by number, from vectors to scores, weights and their sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.inputs import default_scale
from regard.calls.call import AttentionCall
from regard.calls.tokens import label, readable
from regard.matrix import AttentionMatrix
from regard.matrix.scores import Scores

Vector = Sequence[float] | Tensor
Vectors = Sequence[Sequence[float]] | Tensor

_NUMBERS = 4
"""So many numbers of a vector are shown."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """What happens when one token looks at others.

    Attributes:
        tokens: the tokens that are looked at.
        asking: the token that looks.
        query: its query, [key_dim].
        keys: the keys of the others, [keys, key_dim].
        values: their values, [keys, value_dim], if they are known.
        scale: what scores are multiplied by.
        scores: query · key, [keys].
        scaled: what the softmax is taken of, [keys].
        weights: the softmax, [keys].
        output: the sum of the values by their weights, [value_dim], if they are known.
        notes: what else there is to say.
    """

    tokens: Sequence[str]
    asking: str
    query: Float[Tensor, "key_dim"]
    keys: Float[Tensor, "keys key_dim"]
    values: Float[Tensor, "keys value_dim"] | None
    scale: float
    scores: Float[Tensor, "keys"]
    scaled: Float[Tensor, "keys"]
    weights: Float[Tensor, "keys"]
    output: Float[Tensor, "value_dim"] | None
    notes: Sequence[str] = ()

    def strongest(self, count: int) -> list[int]:
        """Return the places of the tokens that are looked at most, in the order of the text."""
        return sorted(self.weights.argsort(descending=True)[:count].tolist())

    def as_data(self) -> dict[str, Any]:
        """Return it as numbers and lists, as JSON has them."""
        rows = [
            {
                "token": self.tokens[place],
                "key": _numbers(self.keys[place]),
                "score": _number(self.scores[place]),
                "scaled": _number(self.scaled[place]),
                "weight": _number(self.weights[place]),
                "value": None if self.values is None else _numbers(self.values[place]),
            }
            for place in range(len(self.tokens))
        ]
        return {
            "token": self.asking,
            "scaled_by": self.scale,
            "query": _numbers(self.query),
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
    """Compute attention for one token, step by step, in float64.

    scores = keys · query; weights = softmax(scale · scores); output = Σ weight · value.

    Args:
        tokens: the tokens that are looked at.
        query: the query of the token that looks, [key_dim].
        keys: a key for each token, [keys, key_dim].
        values: a value for each token, [keys, value_dim], if there are any.
        asking: the token that looks.
        scale: what scores are multiplied by, 1/√key_dim by default.
        notes: what else there is to say.

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
            f"keys must have a vector as long as the query for each of the {len(tokens)} tokens, "
            f"got a query {list(q.shape)} and keys {list(k.shape)}"
        )
    if v is not None and (v.dim() != 2 or len(v) != len(tokens)):
        raise ValueError(
            f"values must have a vector for each of the {len(tokens)} tokens, got {list(v.shape)}"
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
    """Explain where a token of a real model looks, in one head.

    Args:
        call: a call of attention that was watched; with `values=True`, if the sum is wanted too.
        tokens: the tokens of its keys.
        token: the number of the query.
        head: which head.
        batch: which sequence.
        asking: the token that looks; by default the one of `tokens` at its place.

    Returns:
        An explanation of the keys that the token may look at.

    Raises:
        ValueError: tokens are more or fewer than keys, or queries and keys were not kept.
        IndexError: there is no such token, head or sequence.
    """
    matrix = cast(AttentionMatrix, call.matrix[batch, head])
    num_queries, num_keys = matrix.shape
    if not -num_queries <= token < num_queries:
        raise IndexError(f"there are {num_queries} queries, counted from 0, got number {token}")
    token %= num_queries
    if len(tokens) != num_keys:
        raise ValueError(f"{call.module} has {num_keys} keys, got {len(tokens)} tokens")
    weights = cast(Tensor, matrix[token]).double().cpu()
    parts = call.scores
    group = parts.group
    seen = weights > 0.0
    query = parts.whole_query[batch, head, token].double().cpu()
    keys = parts.whole_key[batch, head // group].double().cpu()[seen]
    values = None if parts.value is None else parts.value[batch, head // group].double().cpu()[seen]
    scale = parts.scale
    scores = keys @ query
    # What the softmax was taken of: the scores, with all that was done to them.
    lse = matrix[token : token + 1].lse.double().cpu()
    scaled = weights[seen].log() + lse
    pieces = [label(piece) for piece in readable(tokens)]
    if asking is None:
        place = token + num_keys - num_queries
        asking = pieces[place] if place >= 0 else f"query {token}"
    return Explanation(
        [pieces[place] for place in seen.nonzero().flatten().tolist()],
        asking,
        query,
        keys,
        values,
        scale,
        scores,
        scaled,
        weights[seen],
        None if values is None else weights[seen] @ values,
        _notes(call, head, num_keys - int(seen.sum()), parts),
    )


def _notes(call: AttentionCall, head: int, hidden: int, parts: Scores) -> list[str]:
    notes = [f"{call.module}, head {head}"]
    if hidden:
        left = "1 token is" if hidden == 1 else f"{hidden} tokens are"
        notes.append(f"{left} left out, with nothing to get, or not allowed to be looked at")
    if parts.bias is not None:
        notes.append("the scaled scores have what the model adds to them, or does to them, in them")
    if parts.sinks is not None:
        notes.append("a sink takes its share of the softmax, so that the weights add up to less")
    return notes


def vector(numbers: Vector) -> str:
    """Return a vector as text, its first few numbers.

    >>> vector([0.1, 0.25, 0.5, 1.0, 2.0])
    '[0.100, 0.250, 0.500, 1.000, …]'
    """
    shown = ", ".join(f"{number:.3f}" for number in numbers[:_NUMBERS])
    return f"[{shown}{', …' if len(numbers) > _NUMBERS else ''}]"


def _number(value: Tensor) -> float | None:
    """Return a number as JSON has it, which has no NaN, in 7 figures: what is small is not 0."""
    return float(f"{value.item():.7g}") if bool(value.isfinite()) else None


def _numbers(values: Tensor) -> list[float | None]:
    return [_number(value) for value in values]
