"""What the site does beyond its settings: pages kept elsewhere, live ones, formulas as MathML."""

import html
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
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
    """Link to the repository, and leave out the page for wrong addresses, which has no place."""
    config.theme.static_templates.discard("404.html")
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    if "/OWNER/" not in urls["Repository"]:
        config.repo_url = urls["Repository"]
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


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search for screen readers."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def on_post_build(config: Any) -> None:
    """Put the live page and the live map beside the pages that show them."""
    shutil.copytree(_live(), Path(config.site_dir) / "live", dirs_exist_ok=True)


@cache
def _live() -> str:
    """Return a folder with both, made once: `mkdocs serve` builds at every change."""
    folder = tempfile.mkdtemp(prefix="regard-live-")
    subprocess.run([sys.executable, "-m", "docs_site.live", folder], cwd=ROOT, check=True)
    return folder


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found["element"] == "div" else "inline"
    drawn = convert(html.unescape(found["latex"]).strip(), display=display)
    # A formula of its own may be wider than a phone, and scroll: by keyboard too.
    return drawn.replace("<math ", '<math tabindex="0" ', 1) if display == "block" else drawn
