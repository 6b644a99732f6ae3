"""A page as HTML: one file, with nothing in it that comes from elsewhere."""

import html
import json
from collections.abc import Mapping
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
_LARGEST_IN_NOTEBOOK = 20_000_000


class Page:
    """A page to save, or to look at in a notebook.

    Args:
        html: the whole page.
        summary: what is on it, in a few words.
        title: its title.
    """

    def __init__(self, html: str, summary: str, title: str) -> None:
        self.html, self.summary, self.title = html, summary, title

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file; return its path."""
        path = Path(path)
        path.write_text(self.html, encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return f"Page({self.title!r}: {self.summary}, {_size(len(self.html))})"

    def _repr_html_(self) -> str:
        if len(self.html) > _LARGEST_IN_NOTEBOOK:
            return (
                f"<p>{html.escape(repr(self))} is too large for a notebook: save it with "
                "<code>page.save(&quot;it.html&quot;)</code> and open it in a browser.</p>"
            )
        # A frame of its own: two pages in a notebook don't know of each other.
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts allow-downloads" '
            'style="width: 100%; height: 680px; border: 0" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )


def document(facts: Mapping[str, Any], blobs: Mapping[str, str]) -> Page:
    """Return a page.

    Args:
        facts: what is on it; see `web/README.md`.
        blobs: edges and maps, packed, by name.
    """
    title = str(facts["title"])
    # No text can end the element that it is in, or begin another.
    data = json.dumps(facts, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{html.escape(_visible(title))}</title><style>{_asset('page.css')}</style></head>",
        '<body><div id="regard"></div>',
        "<noscript>This page shows attention with the help of JavaScript.</noscript>",
        f'<script type="application/json" id="regard-page">{data}</script>',
        *(
            f'<script type="text/plain" id="regard-{name}">{blob}</script>'
            for name, blob in blobs.items()
        ),
        f"<script>{_asset('page.js')}</script></body></html>",
    ]
    num_layers, num_tokens = len(facts["layers"]), sum(len(x["pieces"]) for x in facts["texts"])
    summary = f"{_count(num_layers, 'layer')}, {_count(num_tokens, 'token')}"
    return Page("\n".join(parts), summary, title)


def _asset(name: str) -> str:
    """Return a part of the page that was built from `web/`.

    Raises:
        FileNotFoundError: it was not built.
    """
    file = resources.files("regard.views.page") / "assets" / name
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{name} is missing: in a checkout, build it with `make web` (needs Node 20 or newer); "
            "an installed wheel has it"
        ) from error


def _visible(text: str) -> str:
    """Return text without halves of characters, which no file can hold."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.0f} kB"
