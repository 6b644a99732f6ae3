"""The site as it is built: nothing is missing, nothing comes from elsewhere, it fits any screen."""

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import regard
from examples.screenshot import browser
from tests.browsing import findings_on_screens

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BELOW = "below/regard"
"""The site need not stand at the root of its server."""

ROOMS = sorted({path.stem for path in ROOT.glob("docs/reference/api/*.md")} - {"index", "regard"})
PLACES = ["", "learn/concept/", "reference/api/matrix/"]


class Page(HTMLParser):
    """The places of a page that can be linked to, and where it links to.

    Attributes:
        ids: the places.
        links: element and address of each link.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src", "data") and value is not None:
                self.links.append((tag, value))


@cache
def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built as `make docs` does."""
    top = tmp_path_factory.mktemp("site")
    folder = top / BELOW
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def _missing(site: Path, page: Path, tag: str, address: str) -> str | None:
    """Say what is wrong with a link, if anything is."""
    parts = urlsplit(address)
    if parts.scheme in ("http", "https") or parts.netloc:
        return None if tag == "a" else "is loaded from elsewhere"
    if parts.scheme in ("data", "mailto"):
        return None
    if parts.scheme or parts.path.startswith("/"):
        return "is not relative"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file() or not target.is_relative_to(site.resolve()):
        return "leads nowhere"
    place = unquote(parts.fragment)
    # A script asks for the palette's toggle and the search by names that are no places, and
    # "layer=3" says what a live page shows.
    if place and not place.startswith("__") and "=" not in place and place not in read(target).ids:
        return "leads to no place on its page"
    return None


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = sorted(site.resolve().rglob("*.html"))
    found = [
        (str(page.relative_to(site.resolve())), address, wrong)
        for page in pages
        for tag, address in read(page).links
        if (wrong := _missing(site, page, tag, address))
    ]
    assert len(pages) > 40
    assert found == []


def test_styles_ask_nobody(site: Path) -> None:
    addresses = [
        address
        for sheet in site.rglob("*.css")
        for address in re.findall(r"url\(([^)]*)\)|@import\s+([^;]*)", sheet.read_text("utf-8"))
    ]
    assert addresses
    assert [one for one in addresses if "://" in "".join(one) and "data:" not in "".join(one)] == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_has_every_public_name(site: Path, room: str) -> None:
    page = read(site.resolve() / "reference" / "api" / room / "index.html")
    exported = importlib.import_module(f"regard.{room}").__all__
    assert {f"regard.{room}.{name}" for name in exported} - page.ids == set()


def test_the_reference_has_every_room() -> None:
    folders = (path.parent.name for path in ROOT.glob("src/regard/*/__init__.py"))
    # The command line has a page of its own; vLLM is watched by `regard.watch`, and what several
    # processes agree on has no public names: its errors are RuntimeErrors and ValueErrors.
    assert sorted({*folders} - {"cli", "distributed", "vllm"}) == ROOMS


def test_the_first_page_of_the_reference_names_what_is_exported() -> None:
    text = (ROOT / "docs" / "reference" / "api" / "regard.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[`(\w+)`\]\[", text, re.MULTILINE)
    assert sorted(named) == sorted([*regard.__all__, "open", "save"])


def test_formulas_are_mathml(site: Path) -> None:
    html = (site / "learn" / "mathematics" / "index.html").read_text(encoding="utf-8")
    assert html.count("<math ") > 5
    assert "arithmatex" not in html


def test_what_is_kept_elsewhere_is_there(site: Path) -> None:
    for page, kept in (("architecture", "DESIGN.md"), ("changelog", "CHANGELOG.md")):
        html = (site / "design" / page / "index.html").read_text(encoding="utf-8")
        titles = re.findall(r"^## ([\w ]+)$", (ROOT / kept).read_text("utf-8"), re.MULTILINE)
        assert all(f">{title}<a" in html for title in titles)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return where the site is served, below the root of a plain server."""
    top = site.parents[len(Path(BELOW).parts) - 1]
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=top)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{BELOW}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def visit(chromium: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open pages of the site; at the end, see that they complained of nothing and asked nobody."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts: list[Any] = []

    def open_page(place: str, *, width: int, scheme: str) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        opened = context.new_page()
        opened.set_default_timeout(60_000)
        opened.on("request", lambda request: asked.append(request.url))
        opened.on("requestfailed", lambda request: complaints.append(f"no {request.url}"))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on(
            "console",
            lambda message: (
                complaints.append(message.text)
                if message.type in ("error", "warning") and "GL Driver Message" not in message.text
                else None
            ),
        )
        opened.goto(address + place, wait_until="networkidle")
        return opened

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert elsewhere == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("place", PLACES, ids=["home", "learn", "reference"])
def test_a_page_fits_its_screen(
    visit: Callable[..., Any], place: str, width: int, scheme: str
) -> None:
    opened = visit(place, width=width, scheme=scheme)
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    luminance = opened.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    )
    assert (max(luminance) < 60) if scheme == "dark" else (min(luminance) > 200)


@pytest.mark.parametrize(
    "place", ["", "guides/map/", "learn/concept/"], ids=["home", "map", "learn"]
)
def test_axe_core_finds_nothing_grave(visit: Callable[..., Any], place: str) -> None:
    opened = visit(place, width=1440, scheme="light")
    # Material's own navigation has landmarks that are not told apart: that is moderate.
    found = findings_on_screens(opened)
    assert [one for one in found if one[2] in ("serious", "critical")] == []


@pytest.mark.parametrize("place", ["", "learn/real-model/"], ids=["home", "learn"])
def test_the_page_and_the_map_are_alive(visit: Callable[..., Any], place: str) -> None:
    opened = visit(place, width=1280, scheme="light")
    for frame in opened.query_selector_all("iframe.live"):
        frame.scroll_into_view_if_needed()
    page, live_map = (frame.content_frame() for frame in opened.query_selector_all("iframe.live"))
    page.wait_for_selector("text=animal")
    live_map.wait_for_selector("text=Ishmael")
    assert "MiniLM" in page.title()


def test_search_finds_entropy(visit: Callable[..., Any]) -> None:
    opened = visit("", width=1280, scheme="light")
    opened.click(".md-search__input")
    opened.keyboard.type("entropy")
    opened.wait_for_selector(".md-search-result__item a")
    found = opened.eval_on_selector_all(
        ".md-search-result__item a", "links => links.map(link => link.href)"
    )
    assert any("reference/api/matrix/" in link for link in found)
