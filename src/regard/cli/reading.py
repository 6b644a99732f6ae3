"""Read TEXT|FILE: a text, a text file, or an image."""

import sys
from pathlib import Path
from typing import BinaryIO

from regard.printable import well_formed

_MOST_BYTES = 2**25
"""Maximum bytes of a text: those of a recording."""

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_TEXTS = (".md", ".rst", ".text", ".txt")


def read_input(text: str) -> "str | Path":
    """Return the text, the content of a text file or of stdin ("-"), or the path of an image."""
    if text == "-":
        return _decoded(sys.stdin.buffer, "stdin")
    try:
        path = Path(text).expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):
        # Too long for a file name.
        return well_formed(text)
    if is_folder and text.strip():
        raise OSError(f"{text} is a folder: pass a text or a file")
    one_word = len(text.split()) == 1
    if path.suffix.lower() in _IMAGES and (is_file or one_word):
        if not is_file:
            raise OSError(f"there is no image {text}")
        return path
    if is_file:
        with path.open("rb") as file:
            return _decoded(file, text)
    if one_word and (path.suffix.lower() in _TEXTS or "/" in text):
        raise OSError(f"there is no file {text}")
    return well_formed(text)


def _decoded(file: BinaryIO, name: str) -> str:
    data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{name} must have at most {_MOST_BYTES:,} bytes, got more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8 text") from error
