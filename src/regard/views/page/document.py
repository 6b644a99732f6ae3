"""A page as self-contained HTML."""

import html
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from regard.views.one_file import one_file

_LARGEST_IN_NOTEBOOK = 20_000_000


class Page:
    """A page to save, or to display in a notebook.

    Args:
        html: the HTML.
        summary: a short summary.
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
        # In a frame, so that two pages in a notebook don't interfere.
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts allow-downloads" '
            'style="width: 100%; height: 680px; border: 0" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )


def document(facts: Mapping[str, Any], blobs: Mapping[str, str]) -> Page:
    """Return a page.

    Args:
        facts: its data; see `web/README.md`.
        blobs: edges and maps, compressed, by name.
    """
    title = str(facts["title"])
    sorry = "This page shows attention with the help of JavaScript."
    whole = one_file(
        "regard.views.page", "page", title=title, facts=facts, sorry=sorry, blobs=blobs
    )
    num_layers, num_tokens = len(facts["layers"]), sum(len(x["pieces"]) for x in facts["texts"])
    summary = f"{_count(num_layers, 'layer')}, {_count(num_tokens, 'token')}"
    return Page(whole, summary, title)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.0f} kB"
