"""What the site does beyond its settings: pages kept elsewhere, and formulas without scripts."""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]

KEPT_ELSEWHERE = {"design/architecture.md": "DESIGN.md", "design/changelog.md": "CHANGELOG.md"}
"""Pages of the site whose text stands at the root of the repository, where people look for it."""

# As pymdownx.arithmatex leaves them.
FORMULA = re.compile(
    r'<(?P<element>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=element)>',
    re.DOTALL,
)


def on_config(config: Any) -> Any:
    """Leave out the page for wrong addresses: it would have to know where the site stands."""
    config.theme.static_templates.discard("404.html")
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put in the text of a page that is kept elsewhere, with its links as they are from here."""
    kept = KEPT_ELSEWHERE.get(page.file.src_uri)
    if kept is None:
        return markdown
    return (ROOT / kept).read_text(encoding="utf-8").replace("](docs/", "](../")


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers draw themselves."""
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found["element"] == "div" else "inline"
    return convert(html.unescape(found["latex"]).strip(), display=display)
