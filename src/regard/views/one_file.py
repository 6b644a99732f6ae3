"""HTML that is one file, with nothing in it that comes from elsewhere."""

import html
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
_NOTHING: Mapping[str, str] = {}


def one_file(
    package: str,
    name: str,
    *,
    title: str,
    facts: Mapping[str, Any],
    sorry: str,
    blobs: Mapping[str, str] = _NOTHING,
) -> str:
    """Return HTML with a script that was built from `web/`, and what it shows.

    Args:
        package: the package in whose `assets` the script is.
        name: of the script and its style sheet.
        title: of the document.
        facts: what it shows; see `web/README.md`.
        sorry: what is said where there is no JavaScript.
        blobs: more of it, packed, by name.

    Raises:
        FileNotFoundError: the script was not built.
    """
    # No text can end the element that it is in, or begin another.
    data = json.dumps(facts, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    style, script = (_asset(package, f"{name}.{kind}") for kind in ("css", "js"))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{html.escape(_visible(title))}</title><style>{style}</style></head>",
        f'<body><div id="regard"></div><noscript>{html.escape(sorry)}</noscript>',
        f'<script type="application/json" id="regard-{name}">{data}</script>',
        *(
            f'<script type="text/plain" id="regard-{name}">{blob}</script>'
            for name, blob in blobs.items()
        ),
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(parts)


def _asset(package: str, name: str) -> str:
    try:
        return (resources.files(package) / "assets" / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{name} is missing: in a checkout, build it with `make web` (needs Node 20 or newer); "
            "an installed wheel has it"
        ) from error


def _visible(text: str) -> str:
    """Return text without halves of characters, which no file can hold."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
