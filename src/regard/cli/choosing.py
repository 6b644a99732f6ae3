"""Choose the query token: from `--token`, or a default."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.calls.first_pair import first_pair, reason
from regard.calls.texts import TextLayer
from regard.calls.tokens import label
from regard.cli.running import layer_number
from regard.views.numbers import in_figures

_ANOTHER = "for another, pass --token"
_ANY_OTHER = f"{_ANOTHER} TEXT or @NUMBER"
_LISTED = 8
"""Number of listed positions of tokens with the same text."""


@dataclass(frozen=True)
class Chosen:
    """The query token.

    Attributes:
        number: its position.
        why: why it was chosen, and how to choose another; "" if the choice is unambiguous.
    """

    number: int
    why: str = ""


def asked_token(wanted: str, pieces: Sequence[str]) -> Chosen:
    """Return the token with a text, a position, or both: it, 7, @7, it@7.

    Args:
        wanted: the value of `--token`.
        pieces: the text of each token.

    Raises:
        ValueError: there is no such token.
    """
    shown = [label(piece, width=100) for piece in pieces]
    same = [place for place, token in enumerate(shown) if token == wanted]
    same = same or [place for place, token in enumerate(shown) if token.lower() == wanted.lower()]
    if same:
        return Chosen(same[0], _alike(wanted, same, len(pieces)))
    found = re.fullmatch(r"(?:(.*)@)?(-?\d+)", wanted, re.DOTALL)
    if found is None:
        some = ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "")
        raise ValueError(f"--token must be one of {some} or a position, got {wanted!r}")
    text, number = found[1], int(found[2])
    if not -len(pieces) <= number < len(pieces):
        raise ValueError(f"--token must be a position from 0 to {len(pieces) - 1}, got {number}")
    number %= len(pieces)
    if text and text.lower() != shown[number].lower():
        raise ValueError(f"--token {wanted}: token {number} is {shown[number]!r}")
    return Chosen(number)


def _alike(wanted: str, places: Sequence[int], num_tokens: int) -> str:
    """Return which of several tokens with the same text was taken; "" if unambiguous."""
    is_position = wanted.isdecimal() and int(wanted) < num_tokens and int(wanted) not in places
    if len(places) > 1:
        listed = ", ".join(f"@{place}" for place in places[:_LISTED])
        more = ", …" if len(places) > _LISTED else ""
        first = f"the first of {len(places)} tokens “{wanted}” ({listed}{more})"
        return f"{first}; {_ANOTHER} @{places[1]}"
    return f"the token “{wanted}”; for position {wanted}, pass --token @{wanted}" * is_position


def chosen_token(
    layers: Sequence[TextLayer], wanted: str | None, *, head: int | None = None
) -> Chosen:
    """Return the token of `--token`, or by default the one that a page shows first.

    Args:
        layers: layers with the same query tokens.
        wanted: the value of `--token`.
        head: consider only this head.
    """
    pieces = layers[0].queries.pieces
    if wanted is not None:
        return asked_token(wanted, pieces)
    if len(pieces) == 1:
        return Chosen(0)
    first = first_pair(layers, head=head)
    why = reason(first, layers)
    if not first.is_last and first.key is not None:
        layer = layers[first.layer]
        at = f"{label(layer.keys.pieces[first.key])}@{first.key}"
        where = f"{layer_number(layer.call)}.{first.head}"
        why += f" ({at}, {in_figures(first.weight, 2)} in {where})"
    return Chosen(first.query, f"{why}; {_ANY_OTHER}")
