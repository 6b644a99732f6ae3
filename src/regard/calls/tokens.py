"""Tokens as pieces of running text."""

import re
from collections.abc import Sequence
from functools import cache

_NO_SPACE_BEFORE = frozenset(".,;:!?%)]}…”’")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def readable(tokens: Sequence[str]) -> list[str]:
    r"""Return tokens as pieces that join to the text.

    Known vocabularies: bytes as letters, with "Ġ" for a space (GPT-2, Llama 3); "▁" for a space
    (SentencePiece); "##" before a continuation of a word (BERT). Other strings are words, unless
    one begins or ends with a space: then they are pieces already.

    Args:
        tokens: the tokens, such as `tokenizer.convert_ids_to_tokens(ids)`.

    >>> readable(["[CLS]", "an", "apple", "##tree", ".", "[SEP]"])
    ['[CLS]', ' an', ' apple', 'tree', '.', ' [SEP]']
    >>> readable(["An", "Ġapple", "Ġtree", ".", "Ċ"])
    ['An', ' apple', ' tree', '.', '\n']
    """
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "tokens must be a list of strings, one per token, such as "
            "tokenizer.convert_ids_to_tokens(ids)"
        )
    if any("▁" in token for token in tokens):
        return [_from_sentence_piece(token) for token in tokens]
    if any("Ġ" in token or "Ċ" in token for token in tokens) or _are_bytes(tokens):
        return [_from_bytes(token) for token in tokens]
    if any(token[:1].isspace() or token[-1:].isspace() for token in tokens):
        return list(tokens)
    return [_from_word(token, first=not index) for index, token in enumerate(tokens)]


def label(piece: str, width: int = 14) -> str:
    r"""Return a piece as a label: stripped, printable and truncated.

    >>> label(" apple"), label("\n"), label(" "), label("Donaudampfschiff", width=8)
    ('apple', '↵', '␣', 'Donauda…')
    """
    shown = piece.strip() or piece
    shown = shown.replace("\n", "↵").replace("\t", "⇥").replace("\r", "↵") or "∅"
    shown = "".join(
        "␣" if char.isspace() else char if char.isprintable() else "\ufffd" for char in shown
    )
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


@cache
def _bytes_of_letters() -> dict[str, int]:
    """Return the byte of each letter of GPT-2's byte alphabet."""
    themselves = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in themselves]
    return {chr(byte): byte for byte in themselves} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }


def _are_bytes(tokens: Sequence[str]) -> bool:
    """Return whether tokens without a space are bytes as letters: Chinese, or a word with accents.

    They are if their bytes are valid UTF-8 of another text.
    """
    letters = _bytes_of_letters()
    text = "".join(tokens)
    if text.isascii() or not all(char in letters for char in text):
        return False
    try:
        return bytes(letters[char] for char in text).decode("utf-8") != text
    except UnicodeDecodeError:
        return False


def _from_bytes(token: str) -> str:
    letters = _bytes_of_letters()
    if not all(char in letters for char in token):
        return token
    # A token may end inside a character.
    return bytes(letters[char] for char in token).decode("utf-8", errors="replace")


def _from_sentence_piece(token: str) -> str:
    byte = _BYTE.fullmatch(token)
    if byte is not None:
        return bytes([int(byte[1], 16)]).decode("utf-8", errors="replace")
    return token.replace("▁", " ")


def _from_word(token: str, *, first: bool) -> str:
    if token.startswith("##") and len(token) > 2:
        return token[2:]
    glued = first or not token or token[0] in _NO_SPACE_BEFORE
    return token if glued else f" {token}"
