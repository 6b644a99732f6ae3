"""The files of the viewer, built from `web/`."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "map.js": "text/javascript; charset=utf-8",
    "map.css": "text/css; charset=utf-8",
    # HiGlass, which is large: the page fetches it after the first picture.
    "engine.js": "text/javascript; charset=utf-8",
}
"""The files of the viewer and their media types."""

_PACKED = ("map.js", "map.css", "engine.js")


@cache
def assets() -> Mapping[str, bytes]:
    """Return the files of the viewer by name.

    Raises:
        FileNotFoundError: the package is a checkout in which they were not built.
    """
    return {name: _read(name) for name in ASSETS}


@cache
def packed_assets() -> Mapping[str, bytes]:
    """Return the compressible files as gzip.

    Raises:
        FileNotFoundError: the package is a checkout in which they were not built.
    """
    return {name: _read(f"{name}.gz") for name in _PACKED}


def _read(name: str) -> bytes:
    try:
        return (files("regard.server") / "assets" / name).read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            "the viewer is not built: run `make web` (needs Node), or install the package"
        ) from error
