"""A browser, and pages opened in it that may ask nobody for anything."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HOW_TO_INSTALL = (
    "the tests of pages drive a browser: `pip install playwright` and install Chromium "
    "(`apt-get install chromium`, or another package that has it)"
)

Opened = Any
"""A page of playwright, which is typed only where it is installed."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium that is on this computer already."""
    try:
        from examples import screenshot
    except ImportError:
        pytest.fail(HOW_TO_INSTALL)
    if screenshot.chromium_path() is None:
        pytest.fail(HOW_TO_INSTALL)
    with screenshot.browser() as chromium:
        yield chromium


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open HTML in the browser, without a network; at the end, see that it missed nothing."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts: list[Any] = []

    def open_html(html: str, hash: str = "", **settings: Any) -> Opened:
        path = tmp_path / f"page-{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        settings.setdefault("viewport", {"width": 1440, "height": 900})
        context = browser.new_context(offline=True, reduced_motion="reduce", **settings)
        contexts.append(context)
        opened = context.new_page()
        opened.set_default_timeout(15_000)
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
        opened.wait_for_selector(".token, [role=alert]:not([hidden]), iframe")
        return opened

    yield open_html
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith((tmp_path.as_uri(), "about:"))] == []
