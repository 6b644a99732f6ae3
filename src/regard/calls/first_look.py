"""The token and head to show first."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.calls.choose import one_sequence
from regard.calls.texts import Layer, TextPart

FIRST_SCREEN = 128
"""Number of tokens on the first screen, among which the token is chosen."""

_ROWS_AT_ONCE = 16
_NEAR = 2
"""Up to this distance a word is a neighbour: "didn" and "t" of "didn't"."""

_SPECIAL = re.compile(r"\[[^\s\[\]]+\]|<[^\s<>]+>")


@dataclass(frozen=True)
class FirstLook:
    """A query, the word it attends to most, and the head.

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


def first_look(
    layers: Sequence[Layer], batch: int | None = None, head: int | None = None
) -> FirstLook:
    """Return the token and head to show first.

    For a decoder it is the last token, if the text fits a screen. Otherwise it is the word on the
    first screen with the largest weight on another word. The first token and neighbours don't
    count: heads without a task attend to them.

    Args:
        layers: layers with the same queries.
        batch: which sequence.
        head: search this head only.
    """
    num_queries = len(layers[0].queries.pieces)
    is_last = num_queries <= FIRST_SCREEN and _is_decoder(layers, batch)
    queries = torch.tensor([num_queries - 1]) if is_last else _asking(layers[0].queries)
    best = FirstLook(0, head or 0, int(queries[0]), None, 0.0, is_last)
    for number, layer in enumerate(layers):
        matrix = one_sequence(layer.call, batch)
        matrix = matrix if head is None else matrix[head : head + 1]
        for some in queries.split(_ROWS_AT_ONCE):
            counted = informative(layer.queries, layer.keys, some)
            rows = matrix.rows(some).float().cpu().nan_to_num(0.0)
            rows = rows.view(-1, *rows.shape[-2:]).masked_fill(~counted, 0.0)
            if rows.max() > best.weight:
                place, row, key = (int(x) for x in torch.unravel_index(rows.argmax(), rows.shape))
                query, weight = int(some[row]), rows.max().item()
                best = FirstLook(number, head or place, query, key, weight, is_last)
    return best


def first_looks(layers: Sequence[Layer], batch: int | None = None) -> Iterator[FirstLook]:
    """Yield what to show first of each text of queries, the target before the source.

    Layers are counted among all of them.
    """
    for text in sorted({layer.queries.text for layer in layers}, reverse=True):
        numbers = [n for n, layer in enumerate(layers) if layer.queries.text == text]
        found = first_look([layers[number] for number in numbers], batch)
        yield replace(found, layer=numbers[found.layer])


def reason(found: FirstLook, layers: Sequence[Layer]) -> str:
    """Say why a token is shown first."""
    if found.is_last:
        return "the last token, which predicts the next"
    if found.key is None:
        return "no word looks at another"
    some = len(layers[found.layer].queries.pieces) > FIRST_SCREEN
    among = f"of the first {FIRST_SCREEN} tokens" if some else "of all words"
    return f"{among} it looks hardest at another word"


def informative(
    queries: TextPart, keys: TextPart, some: Int[Tensor, "some"]
) -> Bool[Tensor, "some keys"]:
    """Return which keys of some queries are distant words, and not the first token."""
    return distant_words(keys, queries, some) & (torch.tensor(keys.positions) != 0)


def distant_words(
    part: TextPart, others: TextPart, some: Int[Tensor, "some"]
) -> Bool[Tensor, "some tokens"]:
    """Return which tokens are words, and neither one of some other tokens nor its neighbour."""
    words = _are_words(part.pieces).expand(len(some), -1)
    if part.text != others.text:
        return words
    places = torch.tensor(others.positions)[some]
    return words & ((torch.tensor(part.positions) - places[:, None]).abs() > _NEAR)


def _asking(part: TextPart) -> Int[Tensor, "some"]:
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


def _is_decoder(layers: Sequence[Layer], batch: int | None) -> bool:
    """Return whether the last query but one never attends to the last key."""
    own = [layer for layer in layers if layer.queries == layer.keys]
    if not own or len(own[0].queries.pieces) == 1:
        return False
    return not any((one_sequence(one.call, batch)[..., -2, -1] > 0.0).any() for one in own)
