"""The query, key and head to show first."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.calls.choose import one_sequence
from regard.calls.texts import TextLayer, TextPart

FIRST_SCREEN = 128
"""Number of tokens on the first screen, among which the token is chosen."""

_ROWS_AT_ONCE = 16
_NEAR = 2
"""Up to this distance a word is a neighbour: "didn" and "t" of "didn't"."""

_SPECIAL = re.compile(r"\[[^\s\[\]]+\]|<[^\s<>]+>")


@dataclass(frozen=True)
class FirstPair:
    """A query, the key it attends to most, and the head.

    Attributes:
        layer: index of the layer among those searched.
        head: index of the head.
        query: index of the query.
        key: index of the key; None if there is none.
        weight: the weight of the pair.
        is_last: whether the query is the last token, from which a decoder continues.
    """

    layer: int
    head: int
    query: int
    key: int | None
    weight: float
    is_last: bool


def first_pair(
    layers: Sequence[TextLayer], batch: int | None = None, head: int | None = None
) -> FirstPair:
    """Return the query, key and head to show first.

    For a decoder the query is the last token, if the text fits a screen. Otherwise it is the word
    on the first screen with the largest weight on another word. The first token and neighbours
    don't count: heads without a task attend to them.

    Args:
        layers: layers with the same queries.
        batch: which sequence.
        head: search this head only.
    """
    queries = layers[0].queries
    num_queries = len(queries.pieces)
    is_last = num_queries <= FIRST_SCREEN and _is_decoder(layers, batch)
    candidates = torch.tensor([num_queries - 1]) if is_last else _first_words(queries)

    best = FirstPair(0, head or 0, int(candidates[0]), None, 0.0, is_last)
    for number, layer in enumerate(layers):
        matrix = one_sequence(layer.call, batch)
        matrix = matrix if head is None else matrix[head : head + 1]
        for indices in candidates.split(_ROWS_AT_ONCE):
            counted = informative(layer.queries, layer.keys, indices)
            rows = matrix.rows(indices).float().cpu().nan_to_num(0.0)
            rows = rows.view(-1, *rows.shape[-2:]).masked_fill(~counted, 0.0)
            if rows.max() > best.weight:
                index, row, key = (int(x) for x in torch.unravel_index(rows.argmax(), rows.shape))
                query, weight = int(indices[row]), rows.max().item()
                best = FirstPair(number, head or index, query, key, weight, is_last)
    return best


def first_pairs(layers: Sequence[TextLayer], batch: int | None = None) -> Iterator[FirstPair]:
    """Yield the pair to show first of each text of queries, the target before the source.

    Layers are counted among all of them.
    """
    for text in sorted({layer.queries.text for layer in layers}, reverse=True):
        numbers = [n for n, layer in enumerate(layers) if layer.queries.text == text]
        pair = first_pair([layers[number] for number in numbers], batch)
        yield replace(pair, layer=numbers[pair.layer])


def reason(pair: FirstPair, layers: Sequence[TextLayer]) -> str:
    """Return why a pair is shown first."""
    if pair.is_last:
        return "the last token, which predicts the next"
    if pair.key is None:
        return "no word looks at another"
    is_longer = len(layers[pair.layer].queries.pieces) > FIRST_SCREEN
    among = f"of the first {FIRST_SCREEN} tokens" if is_longer else "of all words"
    return f"{among} it looks hardest at another word"


def informative(
    queries: TextPart, keys: TextPart, indices: Int[Tensor, "chosen"]
) -> Bool[Tensor, "chosen keys"]:
    """Return which keys of the chosen queries are distant words, and not the first token."""
    return distant_words(keys, queries, indices) & (torch.tensor(keys.positions) != 0)


def distant_words(
    part: TextPart, others: TextPart, indices: Int[Tensor, "chosen"]
) -> Bool[Tensor, "chosen tokens"]:
    """Return which tokens are words, and not near the chosen one of the others.

    Args:
        part: the tokens.
        others: the tokens on the other side.
        indices: which of the others are chosen.
    """
    words = _are_words(part.pieces).expand(len(indices), -1)
    if part.text != others.text:
        return words
    positions = torch.tensor(others.positions)[indices]
    return words & ((torch.tensor(part.positions) - positions[:, None]).abs() > _NEAR)


def _first_words(part: TextPart) -> Int[Tensor, "words"]:
    """Return the words on the first screen, or all tokens there if none is a word."""
    words = _are_words(part.pieces[:FIRST_SCREEN]).nonzero().flatten()
    return words if len(words) else torch.arange(min(len(part.pieces), FIRST_SCREEN))


def _are_words(pieces: Sequence[str]) -> Bool[Tensor, "tokens"]:
    """Return which tokens have letters or digits, and are not special like [CLS] and </s>."""
    return torch.tensor(
        [
            any(map(str.isalnum, piece)) and _SPECIAL.fullmatch(piece.strip()) is None
            for piece in pieces
        ]
    )


def _is_decoder(layers: Sequence[TextLayer], batch: int | None) -> bool:
    """Return whether the last query but one never attends to the last key."""
    own = [layer for layer in layers if layer.queries == layer.keys]
    if not own or len(own[0].queries.pieces) == 1:
        return False
    return not any((one_sequence(layer.call, batch)[..., -2, -1] > 0.0).any() for layer in own)
