"""Self-contained HTML files."""

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
    """Return HTML with a script built from `web/`, and its data.

    Args:
        package: the package with the script in its `assets`.
        name: name of the script and its style sheet.
        title: title of the document.
        facts: JSON data; see `web/README.md`.
        sorry: text shown without JavaScript.
        blobs: compressed data, by name.

    Raises:
        FileNotFoundError: the script was not built.
    """
    # Escaped, so that no text can close its element or open another.
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
    """Return text without lone surrogates, which can't be encoded."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
