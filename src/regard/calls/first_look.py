"""What to show first of a text: a token that looks at another word, and the head where it does."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.calls.choose import one_sequence
from regard.calls.texts import Layer, TextPart

FIRST_SCREEN = 128
"""What is shown first is among so many tokens, which a screen holds."""

_ROWS_AT_ONCE = 16

_SPECIAL = re.compile(r"\[[^\s\[\]]+\]|<[^\s<>]+>")


@dataclass(frozen=True)
class FirstLook:
    """A token that looks at another word, and the head where it looks hardest.

    Attributes:
        layer: the layer, counted among those that were searched.
        head: the head, counted among those of the layer.
        query: the token that looks, counted among the queries of the layer.
        key: the word that it looks at, counted among its keys; None if there is none.
        weight: how much it looks at it.
        is_last: whether the token was taken because a decoder goes on from it.
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
    """Return what to show first.

    A decoder is shown where it goes on: at the last token, if the text fits a screen. Otherwise
    it is the word on the first screen that looks hardest at another word. Words next to it and
    the first token don't count: heads that have nothing to do look there.

    Args:
        layers: layers that look from the same tokens.
        batch: which sequence.
        head: the only head that counts.
    """
    num_queries = len(layers[0].queries.pieces)
    is_last = num_queries <= FIRST_SCREEN and _is_decoder(layers, batch)
    queries = torch.tensor([num_queries - 1]) if is_last else _asking(layers[0].queries)
    best = FirstLook(0, head or 0, int(queries[0]), None, 0.0, is_last)
    for number, layer in enumerate(layers):
        matrix = one_sequence(layer.call, batch)
        matrix = matrix if head is None else matrix[head : head + 1]
        for some in queries.split(_ROWS_AT_ONCE):
            rows = matrix.rows(some).float().cpu().nan_to_num(0.0)
            rows = rows.view(-1, *rows.shape[-2:]).masked_fill(~informative(layer, some), 0.0)
            if rows.max() > best.weight:
                place, row, key = (int(x) for x in torch.unravel_index(rows.argmax(), rows.shape))
                query, weight = int(some[row]), rows.max().item()
                best = FirstLook(number, head or place, query, key, weight, is_last)
    return best


def informative(layer: Layer, queries: Int[Tensor, "some"]) -> Bool[Tensor, "some keys"]:
    """Return which keys say something about a head if a query looks at them.

    Those are words, but not the first token, nor the query itself and the tokens beside it.
    """
    keys = torch.tensor(layer.keys.positions)
    found = (_are_words(layer.keys.pieces) & (keys != 0)).expand(len(queries), -1)
    if layer.queries.text != layer.keys.text:
        return found
    rows = torch.tensor(layer.queries.positions)[queries]
    return found & ((keys - rows[:, None]).abs() > 1)


def _asking(part: TextPart) -> Int[Tensor, "some"]:
    """Return the words on the first screen, or all tokens there if none is a word."""
    words = _are_words(part.pieces[:FIRST_SCREEN]).nonzero().flatten()
    return words if len(words) else torch.arange(min(len(part.pieces), FIRST_SCREEN))


def _are_words(pieces: Sequence[str]) -> Bool[Tensor, "tokens"]:
    """Return which tokens have letters or digits, and don't look special as [CLS] and </s> do."""
    return torch.tensor(
        [
            any(map(str.isalnum, piece)) and _SPECIAL.fullmatch(piece.strip()) is None
            for piece in pieces
        ]
    )


def _is_decoder(layers: Sequence[Layer], batch: int | None) -> bool:
    """Say whether no query of self-attention looks ahead: the last but one not at the last."""
    own = [layer for layer in layers if layer.queries == layer.keys]
    if not own or len(own[0].queries.pieces) == 1:
        return False
    return not any((one_sequence(one.call, batch)[..., -2, -1] > 0.0).any() for one in own)
