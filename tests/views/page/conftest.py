"""A browser, pages opened in it that may ask nobody for anything, and some that tests share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from tests.browsing import opening
from tests.views.page.pages import WORDS, call_of, html_of

HOW_TO_INSTALL = (
    "the tests of pages drive a browser: `pip install playwright` and install Chromium "
    "(`apt-get install chromium`, or another package that has it)"
)

Opened = Any
"""A page of playwright, which is typed only where it is installed."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium that is on this computer already. One process can drive one at a time."""
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
    with opening(
        browser, tmp_path, ".token, .head-tile, [role=alert]:not([hidden]), iframe"
    ) as open_html:
        yield open_html


@pytest.fixture(scope="session")
def short() -> str:
    """A page of a short text, which is shown as lines."""
    return html_of(WORDS, title="A short text", about="a small model")


@pytest.fixture(scope="session")
def long() -> str:
    """A page of a text that is too long for lines."""
    tokens = [f"w{number}" if number % 9 else "\n" for number in range(1, 1501)]
    return html_of(tokens, layers=1)


@pytest.fixture(scope="session")
def cross() -> str:
    """A page of an encoder–decoder model."""
    source, target = ["Das", "Tier", "war", "müde", "."], ["The", "animal", "was", "tired"]
    calls = [
        call_of(5, module="encoder.layers.0"),
        call_of(4, module="decoder.layers.0"),
        call_of(4, 5, looks="cross", module="decoder.layers.0.cross"),
    ]
    return regard.page(calls, target, source=source).html
