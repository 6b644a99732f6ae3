"""The viewer: three files, built from `web/` with the package."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "map.js": "text/javascript; charset=utf-8",
    "map.css": "text/css; charset=utf-8",
}
"""The files of the viewer and what they are served as."""


@cache
def assets() -> Mapping[str, bytes]:
    """Return the files of the viewer.

    Raises:
        FileNotFoundError: the package is a checkout in which they were not built.
    """
    folder = files("regard.server") / "assets"
    try:
        return {name: (folder / name).read_bytes() for name in ASSETS}
    except FileNotFoundError as error:
        raise FileNotFoundError(
            "the viewer is not built: `make web` builds it (it needs Node), and so does installing "
            "the package"
        ) from error
