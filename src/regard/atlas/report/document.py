"""A report as HTML: one file, with nothing in it that comes from elsewhere."""

import html
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from regard.atlas.report.facts import Table, facts_of

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def report(tables: Mapping[str, Table], about: Mapping[str, Any]) -> str:
    """Return a survey as a page to look at in a browser, whole in itself.

    Args:
        tables: the tables of an atlas, of pyarrow, by name: heads, and if they are known offsets,
            distances, relations, coreference and examples.
        about: what is known of the survey: model, source, tokens, windows, documents, date,
            versions, skipped (how often something was, by reason), and whatever else.

    Raises:
        ValueError: there are no heads.
        FileNotFoundError: the script of the page was not built.
    """
    facts = facts_of(tables, about)
    # No text can end the element that it is in, or begin another.
    data = json.dumps(facts, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    title = str(facts["title"]).encode("utf-8", errors="replace").decode("utf-8")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{html.escape(title)} · atlas</title><style>{_asset('atlas.css')}</style></head>",
        '<body><div id="regard"></div>',
        "<noscript>This report shows its tables with the help of JavaScript.</noscript>",
        f'<script type="application/json" id="regard-atlas">{data}</script>',
        f"<script>{_asset('atlas.js')}</script></body></html>",
    ]
    return "\n".join(parts)


def _asset(name: str) -> str:
    """Return a part of the report that was built from `web/`.

    Raises:
        FileNotFoundError: it was not built.
    """
    file = resources.files("regard.atlas") / "assets" / name
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{name} is missing: in a checkout, build it with `make web` (needs Node 20 or newer); "
            "an installed wheel has it"
        ) from error
