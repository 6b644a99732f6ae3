"""A browser, and pages opened in it that may ask nobody for anything."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browsing import opening

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
    with opening(browser, tmp_path, ".token, [role=alert]:not([hidden]), iframe") as open_html:
        yield open_html
