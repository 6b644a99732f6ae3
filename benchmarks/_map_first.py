"""How soon a browser shows the map: from going to its address to the first picture, and to all."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import sync_playwright

from examples.map_gallery import ARGUMENTS
from examples.screenshot import chromium_path

PATIENCE = 60.0
"""After so many seconds a map that is not there is given up."""

_MARKS = """() => ["regard:first-picture", "regard:ready"].map(
    (name) => performance.getEntriesByName(name)[0]?.startTime ?? null)"""


@dataclass(frozen=True)
class Opened:
    """When a map was there, in seconds after its address was gone to.

    Attributes:
        picture: when its tiles could be seen.
        ready: when the engine had drawn them, and one could zoom.
    """

    picture: float
    ready: float


@contextmanager
def chromium() -> Generator[Any]:
    """Run Chromium, with graphics in software."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def opened(browser: Any, url: str) -> Opened:
    """Open a map as somebody does who never has before: nothing is in a cache.

    Raises:
        TimeoutError: it was not there in time.
    """
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    try:
        page.goto(url)
        for _ in range(round(PATIENCE / 0.2)):
            picture, ready = page.evaluate(_MARKS)
            if ready is not None:
                return Opened(picture / 1000, ready / 1000)
            # To ask more often would take time from what is measured.
            page.wait_for_timeout(200)
    finally:
        context.close()
    raise TimeoutError(f"the map at {url} was not there after {PATIENCE:.0f} s")


def median(values: Sequence[float]) -> float:
    """Return the middle one, of an odd number."""
    return sorted(values)[len(values) // 2]
