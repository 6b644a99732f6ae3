"""Pages opened in a browser that may ask nobody for anything."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from materials import axe_core

PATIENCE = 60
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Settles when what was changed is painted."""

FINDINGS = """() => axe.run().then(({ violations }) => violations
  .map(one => [one.impact, one.id, one.nodes.map(node => node.html.slice(0, 120))]))"""


def findings(page: Any) -> list[Any]:
    """Return what axe-core finds on a page: impact, rule and elements."""
    page.evaluate(FRAMES)
    page.evaluate(axe_core().read_text(encoding="utf-8"))
    return page.evaluate(FINDINGS)


def findings_on_screens(page: Any) -> list[Any]:
    """Return the same, light and dark, on a wide screen and on a phone's."""
    found: list[Any] = []
    for scheme in ("light", "dark"):
        for width, height in ((1440, 900), (390, 844)):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.set_viewport_size({"width": width, "height": height})
            found += [(scheme, width, *one) for one in findings(page)]
    return found


def until(page: Any, holds: str) -> None:
    """Wait until an expression is true on a page; playwright's own way is against their policy."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(holds):
        assert time.monotonic() < end, f"in {PATIENCE} s it did not come to be that {holds}"
        page.wait_for_timeout(30)


@contextmanager
def opening(browser: Any, folder: Path, wait_for: str) -> Generator[Callable[..., Any]]:
    """Open HTML in a browser, without a network; at the end, see that it missed nothing.

    Args:
        browser: a Chromium of playwright.
        folder: where to write the HTML.
        wait_for: what is there when a page is.
    """
    complaints: list[str] = []
    asked: list[str] = []
    contexts: list[Any] = []

    def open_html(html: str, hash: str = "", **settings: Any) -> Any:
        path = folder / f"page-{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        settings.setdefault("viewport", {"width": 1440, "height": 900})
        context = browser.new_context(offline=True, reduced_motion="reduce", **settings)
        contexts.append(context)
        opened = context.new_page()
        opened.set_default_timeout(1000 * PATIENCE)
        opened.on("request", lambda request: asked.append(request.url))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        opened.on(
            "console",
            lambda message: (
                complaints.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        opened.goto(path.as_uri() + hash)
        opened.wait_for_selector(wait_for)
        return opened

    yield open_html
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith((folder.as_uri(), "about:"))] == []
