"""A page as a picture, taken in a browser."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def chromium_path() -> str | None:
    """Return where Chromium is on this computer: what the variable CHROMIUM names comes first."""
    known = (found for name in NAMES if (found := shutil.which(name)))
    return os.environ.get("CHROMIUM") or next(known, None)


@contextmanager
def browser() -> Generator[Browser]:
    """Run Chromium; without one on this computer, playwright says how to install its own."""
    with sync_playwright() as driver:
        # Containers often run as root, where Chromium can have no sandbox.
        chromium = driver.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


@dataclass(frozen=True)
class Screenshot:
    """A page that is saved as a picture, as figures are.

    Attributes:
        page: the page, as `regard.page` makes it.
        address: what to show of it, such as "layer=5&head=11&token=10".
        dark: whether to show it dark.
        width: in pixels.
        height: in pixels.
    """

    page: Any
    address: str = ""
    dark: bool = False
    width: int = 1280
    height: int = 800

    def savefig(self, buffer: Any, *, dpi: int, format: str) -> None:
        """Write it into a buffer. Two dots a pixel are 200 dots an inch."""
        assert format == "png"
        with tempfile.TemporaryDirectory() as folder, browser() as chromium:
            path = self.page.save(Path(folder) / "page.html")
            opened = chromium.new_page(
                viewport={"width": self.width, "height": self.height},
                device_scale_factor=dpi / 100,
                color_scheme="dark" if self.dark else "light",
                reduced_motion="reduce",
            )
            opened.goto(f"{path.as_uri()}#{self.address}")
            opened.wait_for_selector("#regard [role=grid]")
            opened.wait_for_timeout(500)
            buffer.write(opened.screenshot())
