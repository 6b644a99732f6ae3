"""The map in a real browser, and what it can be asked."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.browsing import FRAMES

HOW_TO_INSTALL = (
    "the tests of the map drive a browser: `pip install playwright` and install Chromium "
    "(`apt-get install chromium`, or another package that has it)"
)
# Containers often run as root, where Chromium can have no sandbox; and they have no graphics card.
ARGUMENTS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
]
PATIENCE = 120
DEEP = "x=300,340&y=310,350"
"""A part of the book in which tokens can be read."""


def shown(piece: str) -> str:
    """Return how a word of the book stands on an axis."""
    return piece.strip()


@contextmanager
def chromium() -> Generator[Any]:
    """Run the Chromium of this computer, with WebGL in software."""
    try:
        from playwright.sync_api import sync_playwright

        from examples.screenshot import chromium_path
    except ImportError:
        pytest.fail(HOW_TO_INSTALL)
    path = chromium_path()
    if path is None:
        pytest.fail(HOW_TO_INSTALL)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def files_served(folder: Path) -> Generator[str]:
    """Serve a folder by Python's own server, which knows nothing of maps."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what it is asked."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@dataclass(frozen=True)
class View:
    """A map that is open in the browser."""

    page: Any
    pending: set[str] = field(default_factory=set[str])
    """What was asked for and is not answered yet."""
    held: list[Any] = field(default_factory=list[Any])
    """Requests that are kept from the server."""

    def ask(self, expression: str) -> Any:
        """Ask the map something: its hook is `map`."""
        return self.page.evaluate(
            f"(() => {{ const map = window.regardMap; return {expression} }})()"
        )

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait until something holds, and return it."""
        from playwright.sync_api import Error

        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if found := holds():
                    return found
            except Error as error:
                # The page is just being loaded anew.
                if "context was destroyed" not in str(error):
                    raise
            self.page.wait_for_timeout(30)
        state = self.ask("map && JSON.stringify([map.complete(), map.camera(), map.look()])")
        pytest.fail(
            f"in {PATIENCE} s it did not come to be that {what}; the map is at {state}, "
            f"and has no answer to {sorted(self.pending)}"
        )

    def settle(self) -> None:
        """Wait until all that is in sight is painted and nothing moves any more."""

        def still() -> bool:
            before = self.ask("map?.complete() && JSON.stringify([map.camera(), map.look()])")
            self.page.wait_for_timeout(250)
            after = self.ask("map?.complete() && JSON.stringify([map.camera(), map.look()])")
            return bool(before) and before == after

        self.until(still, "the map is painted and still")

    def sketched(self) -> None:
        """Wait until all is there but what is held, and can be seen."""
        # What is to be asked for, is by then.
        self.page.evaluate(FRAMES)
        held = {route.request.url for route in self.held}
        self.until(lambda: self.pending <= held, "all is there but what is held")
        self.page.evaluate(FRAMES)

    def marked(self, name: str) -> float | None:
        """Return when something was first there, in milliseconds; None if it is not there yet."""
        return self.page.evaluate(
            "(name) => performance.getEntriesByName(`regard:${name}`)[0]?.startTime ?? null", name
        )

    def release(self) -> None:
        """Let the requests through that were held."""
        while self.held:
            self.held.pop().continue_()

    def place(self, key: float, query: float, map: int = 0) -> tuple[float, float]:
        """Return where the middle of a pair is on the screen."""
        x, y = self.ask(f"map.placeOf({key}, {query}, {map})")
        return x, y

    def texts(self, map: int = 0) -> dict[str, list[str]]:
        """Return the words on both axes."""
        return self.ask(f"map.axisTexts({map})")

    def domain(self) -> tuple[list[float], list[float]]:
        """Return which keys and which queries are in sight."""
        found = self.ask("map.domain()")
        return found["x"], found["y"]

    def readout(self) -> str:
        return self.page.inner_text(".readout")

    def pixels(self) -> NDArray[np.uint8]:
        """Return what is on the screen, [height, width, 3], a pixel of it for each of CSS."""
        picture = Image.open(BytesIO(self.page.screenshot(scale="css"))).convert("RGB")
        return np.asarray(picture)


class Viewing:
    """Opens maps, and sees at the end that nothing went wrong and that nobody else was asked."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self._urls: list[str] = []
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.expected: list[str] = []
        """What complaints may say: of faults that a test makes itself."""

    def open(
        self, url: str, hash: str = "", *, wait: bool = True, hold: str = "", **settings: Any
    ) -> View:
        """Open a map in a new context of the browser.

        Args:
            url: where it is.
            hash: what to show of it.
            wait: whether to wait until all of it is there.
            hold: which requests to keep from the server until they are released, as a pattern.
            settings: of the context.
        """
        settings.setdefault("viewport", {"width": 1440, "height": 900})
        settings.setdefault("reduced_motion", "reduce")
        context = self._browser.new_context(**settings)
        self._contexts.append(context)
        self._urls.append(url)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))
        page.on("console", lambda message: self._heard(message.type, message.text))
        view = View(page)
        if hold:
            page.route(hold, lambda route: view.held.append(route))
        page.on("request", lambda request: view.pending.add(request.url))
        for end in ("requestfinished", "requestfailed"):
            page.on(end, lambda request: view.pending.discard(request.url))
        page.goto(f"{url}/{hash}")
        if wait:
            view.until(lambda: view.ask("map?.complete()"), "the map is painted")
            # The text comes after the map.
            view.until(lambda: view.ask("map.hasText()"), "there is a text")
            view.settle()
        return view

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        complaints = [
            complaint
            for complaint in self.complaints
            if not any(words in complaint for words in self.expected)
        ]
        assert not complaints, complaints
        allowed = (*self._urls, "data:", "blob:")
        assert [url for url in self.asked if not url.startswith(allowed)] == []

    def _heard(self, kind: str, words: str) -> None:
        if kind in ("error", "warning") and not _is_driver(words):
            self.complaints.append(words)


def _is_driver(words: str) -> bool:
    """Say whether software that draws in place of a graphics card talks of its own slowness."""
    return "GPU stall due to ReadPixels" in words or "GL Driver Message" in words
