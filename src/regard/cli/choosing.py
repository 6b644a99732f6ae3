"""Which token looks: the one that was asked for, or the one that is taken otherwise."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.calls.first_look import FIRST_SCREEN, first_look
from regard.calls.texts import Layer
from regard.calls.tokens import label
from regard.cli.running import layer_number
from regard.views.numbers import in_figures

_ANOTHER = "for another, pass --token"
_ANY_OTHER = f"{_ANOTHER} TEXT or @NUMBER"
_LISTED = 8
"""So many positions of tokens that are alike are listed."""


@dataclass(frozen=True)
class Chosen:
    """The token that looks.

    Attributes:
        number: its position.
        why: why this one, and how to have another; "" if nothing else can have been meant.
    """

    number: int
    why: str = ""


def asked_token(wanted: str, pieces: Sequence[str]) -> Chosen:
    """Return the token that is meant by its text, its position, or both: it, 7, @7, it@7.

    Args:
        wanted: what the user asked for.
        pieces: the tokens, as pieces of running text.

    Raises:
        ValueError: there is no such token. The message lists some that are there.
    """
    shown = [label(piece, width=100) for piece in pieces]
    same = [place for place, token in enumerate(shown) if token == wanted]
    same = same or [place for place, token in enumerate(shown) if token.lower() == wanted.lower()]
    if same:
        return Chosen(same[0], _alike(wanted, same, len(pieces)))
    found = re.fullmatch(r"(?:(.*)@)?(-?\d+)", wanted, re.DOTALL)
    if found is None:
        some = ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "")
        raise ValueError(f"there is no token {wanted!r}; the tokens are {some}")
    text, number = found[1], int(found[2])
    if not -len(pieces) <= number < len(pieces):
        raise ValueError(f"there are {len(pieces)} tokens, numbered from 0, got {number}")
    number %= len(pieces)
    if text and text.lower() != shown[number].lower():
        raise ValueError(f"token {number} is {shown[number]!r}, got {wanted!r}")
    return Chosen(number)


def _alike(wanted: str, places: Sequence[int], num_tokens: int) -> str:
    """Return which of several tokens of one text was taken; "" if there is nothing to say."""
    is_position = wanted.isdecimal() and int(wanted) < num_tokens and int(wanted) not in places
    if len(places) > 1:
        listed = ", ".join(f"@{place}" for place in places[:_LISTED])
        more = ", …" if len(places) > _LISTED else ""
        first = f"the first of {len(places)} tokens “{wanted}” ({listed}{more})"
        return f"{first}; {_ANOTHER} @{places[1]}"
    return f"the token “{wanted}”; for position {wanted}, pass --token @{wanted}" * is_position


def chosen_token(layers: Sequence[Layer], wanted: str | None, *, head: int | None = None) -> Chosen:
    """Return the token that was asked for; otherwise what a page shows first, and why.

    Args:
        layers: layers that look from the same tokens.
        wanted: what the user asked for.
        head: the only head that counts.
    """
    pieces = layers[0].queries.pieces
    if wanted is not None:
        return asked_token(wanted, pieces)
    if len(pieces) == 1:
        return Chosen(0)
    first = first_look(layers, head=head)
    if first.is_last:
        return Chosen(first.query, f"the last token, from which the model goes on; {_ANY_OTHER}")
    if first.key is None:
        return Chosen(first.query, f"no word looks at another; {_ANY_OTHER}")
    among = f"of the first {FIRST_SCREEN} tokens" if len(pieces) > FIRST_SCREEN else "of all words"
    layer = layers[first.layer]
    at = f"{label(layer.keys.pieces[first.key])}@{first.key}"
    where = f"{layer_number(layer.call)}.{first.head}"
    return Chosen(
        first.query,
        f"{among} it looks hardest at another word ({at}, {in_figures(first.weight, 2)} in "
        f"{where}); {_ANY_OTHER}",
    )
