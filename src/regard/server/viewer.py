"""Serve the files of the viewer, with gzip and versioned URLs.

The page loads files with a version, as in `map.js?v=0123456789abcdef`: the first digits of their
SHA-256. Versioned URLs are immutable; others are revalidated.
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
        packed: the same as gzip, if any.
        version: its version in the page.
    """

    plain: Answer
    packed: Answer | None
    version: str

    def respond(self, request: Request, *, private: bool) -> Response:
        """Return the file, as gzip if the client accepts it."""
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
    """Return the files of the viewer by name.

    Args:
        plain: the bytes of each.
        packed: gzip of some of them.
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
    """Return whether the client accepts gzip."""
    for coding in request.headers.get("Accept-Encoding", "").split(","):
        name, _, weight = coding.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
