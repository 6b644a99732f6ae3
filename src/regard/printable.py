"""Text from files of others, made fit for a terminal and for UTF-8."""

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HALF = re.compile("[\ud800-\udfff]")

REPLACEMENT = "\ufffd"


def printable(text: str) -> str:
    r"""Return a text without the characters that a terminal obeys, and that reorder a line.

    Line breaks and tabs stay.

    >>> printable("a\x1b[31mb")
    'a�[31mb'
    """
    return well_formed(_CONTROL.sub(REPLACEMENT, text))


def well_formed(text: str) -> str:
    r"""Return a text that UTF-8 can hold: halves of characters, lone surrogates, are replaced.

    JSON can spell them, and Python makes them of names of files that are no UTF-8.

    >>> well_formed("a\udcffb")
    'a�b'
    """
    return _HALF.sub(REPLACEMENT, text)


def check_well_formed(name: str, text: str) -> None:
    """Raise ValueError if a text has lone surrogates, which no tokenizer accepts."""
    if half := _HALF.search(text):
        raise ValueError(
            f"{name} must be Unicode text, got the lone surrogate {half[0]!r} at character "
            f"{half.start():,}"
        )
