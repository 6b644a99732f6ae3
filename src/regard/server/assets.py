"""The viewer: a few files, built from `web/` with the package."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "map.js": "text/javascript; charset=utf-8",
    "map.css": "text/css; charset=utf-8",
    # HiGlass, which is large: the page fetches it when the first picture is there.
    "engine.js": "text/javascript; charset=utf-8",
}
"""The files of the viewer and what they are served as."""

_PACKED = ("map.js", "map.css", "engine.js")


@cache
def assets() -> Mapping[str, bytes]:
    """Return the files of the viewer.

    Raises:
        FileNotFoundError: the package is a checkout in which they were not built.
    """
    return {name: _read(name) for name in ASSETS}


@cache
def packed_assets() -> Mapping[str, bytes]:
    """Return those of them that are worth packing, as gzip.

    Raises:
        FileNotFoundError: the package is a checkout in which they were not built.
    """
    return {name: _read(f"{name}.gz") for name in _PACKED}


def _read(name: str) -> bytes:
    try:
        return (files("regard.server") / "assets" / name).read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            "the viewer is not built: `make web` builds it (it needs Node), and so does installing "
            "the package"
        ) from error
