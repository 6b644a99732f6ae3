"""Which token looks: the one that was asked for, or the one that is taken otherwise."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.calls import AttentionCall
from regard.calls.tokens import label, readable
from regard.cli.head_ranking import telling_word
from regard.cli.running import Run, layer_number
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


def asked_token(wanted: str, tokens: Sequence[str]) -> Chosen:
    """Return the token that is meant by its text, its position, or both: it, 7, @7, it@7.

    Raises:
        ValueError: there is no such token. The message lists some that are there.
    """
    shown = [label(piece, width=100) for piece in readable(tokens)]
    same = [place for place, token in enumerate(shown) if token == wanted]
    same = same or [place for place, token in enumerate(shown) if token.lower() == wanted.lower()]
    if same:
        return Chosen(same[0], _alike(wanted, same, len(tokens)))
    found = re.fullmatch(r"(?:(.*)@)?(-?\d+)", wanted, re.DOTALL)
    if found is None:
        some = ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "")
        raise ValueError(f"there is no token {wanted!r}; the tokens are {some}")
    text, number = found[1], int(found[2])
    if not -len(tokens) <= number < len(tokens):
        raise ValueError(f"there are {len(tokens)} tokens, numbered from 0, got {number}")
    number %= len(tokens)
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


def chosen_token(
    run: Run, calls: Sequence[AttentionCall], wanted: str | None, *, head: int | None = None
) -> Chosen:
    """Return the token that was asked for; otherwise one that is worth a look, and why.

    A decoder is looked at where it goes on: at the last token. Of other models it is the word that
    looks hardest at a single other word.

    Args:
        run: what the model did.
        calls: calls that look from the same tokens.
        wanted: what the user asked for.
        head: the only head that counts.
    """
    tokens = run.queries_of(calls[0])
    if wanted is not None:
        return asked_token(wanted, tokens)
    if len(tokens) == 1:
        return Chosen(0)
    if not any(_looks_ahead(call) for call in calls):
        return Chosen(
            len(tokens) - 1, f"the last token, from which the model goes on; {_ANY_OTHER}"
        )
    word = telling_word(run, calls, head)
    if word.head is None:
        return Chosen(word.token, f"no word looks at another; {_ANY_OTHER}")
    among = "all words" if word.among is None else f"{word.among} words, spread over the text,"
    at = f"{label(readable(run.keys_of(word.call)[0])[word.key])}@{word.key}"
    where = f"{layer_number(word.call)}.{word.head}"
    return Chosen(
        word.token,
        f"of {among} it looks hardest at another one ({at}, {in_figures(word.weight, 2)} in "
        f"{where}); {_ANY_OTHER}",
    )


def _looks_ahead(call: AttentionCall) -> bool:
    """Say whether the last token but one looks at the last, in any head."""
    if call.kind == "cross":
        return False
    return bool((call.matrix[0, :, -2, -1] > 0.0).any())
