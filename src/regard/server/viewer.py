"""How the files of the viewer are served: packed for those who can unpack, kept by their version.

The page names the files that it loads with a version, as in `map.js?v=0123456789abcdef`, the first
digits of the SHA-256 of what is in them. By that name they never change, so they are kept for good;
by any other name they are asked for again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from fastapi import Request, Response

from regard.server.assets import ASSETS
from regard.server.cache import Answer
from regard.server.service import FOREVER, response

_VERSION_DIGITS = 16


@dataclass(frozen=True)
class Asset:
    """A file of the viewer.

    Attributes:
        plain: its bytes.
        packed: the same as gzip, if there is such a copy.
        version: the version by which the page names it.
    """

    plain: Answer
    packed: Answer | None
    version: str

    def respond(self, request: Request, *, private: bool) -> Response:
        """Return the file, packed if the asker says that it can unpack it."""
        named = request.query_params.get("v") == self.version
        caching = f"{'private' if private else 'public'}, {FOREVER}" if named else "no-cache"
        packed = self.packed if _can_unpack(request) else None
        found = response(request, packed or self.plain, caching)
        if self.packed is not None:
            found.headers["Vary"] = "Accept-Encoding"
        if packed is not None:
            found.headers["Content-Encoding"] = "gzip"
        return found


def viewer_of(plain: Mapping[str, bytes], packed: Mapping[str, bytes]) -> Mapping[str, Asset]:
    """Return the files of the viewer by their names.

    Args:
        plain: the bytes of each.
        packed: of some of them, the same as gzip.
    """
    return {
        name: Asset(
            plain=Answer.of(body, ASSETS[name]),
            packed=Answer.of(packed[name], ASSETS[name]) if name in packed else None,
            version=sha256(body).hexdigest()[:_VERSION_DIGITS],
        )
        for name, body in plain.items()
    }


def _can_unpack(request: Request) -> bool:
    """Say whether gzip is among what the asker accepts."""
    for coding in request.headers.get("Accept-Encoding", "").split(","):
        name, _, weight = coding.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
