"""Take pictures of the map of a recording, as it looks in a browser.

    regard record moby-dick.txt -m ./smollm2 --tokens 8192 --out book.regard
    python -m examples.map_gallery book.regard          writes to docs/gallery

The places are chosen for SmolLM2-135M over the first 8,192 tokens of Moby Dick; with another
recording, those that it does not have are left out. The names of files begin with "map-".
"""

import argparse
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import regard
from examples.screenshot import chromium_path

LARGEST = 400_000
"""The most bytes of a picture."""

PATIENCE = 120_000
# Containers often run as root, where Chromium can have no sandbox; and they have no graphics card.
ARGUMENTS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
]


@dataclass(frozen=True)
class Shot:
    """A picture: what is seen, on what screen, and what is done before.

    Attributes:
        name: of the file, after "map-".
        look: the address after "#".
        size: of the screen, in CSS pixels.
        dark: whether the theme is dark.
        sharp: how many pixels each of these has.
        search: words to look for.
        sorted_by: a measure that the heads are sorted by.
        point: a key and a query to point at.
        touch: whether it is a phone.
    """

    name: str
    look: str = ""
    size: tuple[int, int] = (1440, 900)
    dark: bool = False
    sharp: float = 1
    search: str = ""
    sorted_by: str = ""
    point: tuple[int, int] | None = None
    touch: bool = False


SHOTS = (
    Shot("whole", "heads=c18-h6"),
    Shot("whole-dark", "heads=c10-h0", dark=True),
    Shot("middle", "heads=c16-h0&x=5600,6400&y=5600,6400"),
    Shot("tokens", "heads=c18-h6&x=4871,4911&y=4931,4971&query=4944", point=(4889, 4944)),
    Shot("tokens-dark", "heads=c16-h0&x=5960,6000&y=5960,6000", dark=True, point=(5979, 5980)),
    Shot("two", "heads=c18-h6,c16-h0&query=6000"),
    Shot("four-dark", "heads=c18-h6,c16-h0,c10-h0,c2-h1", dark=True),
    Shot("search", "heads=c18-h6", search="northern lights"),
    Shot("sorted", "heads=c18-h6&pool=mean&colours=ink", sorted_by="distance"),
    Shot("notebook", "heads=c18-h6", size=(900, 640)),
    Shot("phone", "heads=c16-h0&query=6000", size=(390, 844), sharp=2, touch=True, dark=True),
)


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recording", help="the folder of the recording")
    parser.add_argument("--folder", type=Path, default=Path("docs/gallery"))
    parser.add_argument("--only", nargs="*", default=[], help="names of pictures")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    shown = regard.map(regard.open(options.recording))
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        for shot in SHOTS:
            if options.only and shot.name not in options.only:
                continue
            path = options.folder / f"map-{shot.name}.png"
            write(taken(chromium, shown.url, shot), path)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
        chromium.close()
    shown.stop()


def taken(chromium: Any, url: str, shot: Shot) -> bytes:
    """Open the map, look where it is to be looked, and take the picture."""
    width, height = shot.size
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=shot.sharp,
        color_scheme="dark" if shot.dark else "light",
        reduced_motion="reduce",
        has_touch=shot.touch,
        is_mobile=shot.touch,
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    joint = "&" if "#" in url else "#"
    page.goto(url + (joint + shot.look if shot.look else ""))
    settle(page)
    if shot.sorted_by:
        page.select_option("#sorted-by", shot.sorted_by)
    if shot.search:
        page.keyboard.press("/")
        page.keyboard.type(shot.search)
    settle(page)
    if shot.point:
        page.mouse.move(*page.evaluate(f"regardMap.placeOf({shot.point[0]}, {shot.point[1]})"))
    settle(page)
    picture = page.screenshot(timeout=PATIENCE)
    context.close()
    return picture


def settle(page: Any) -> None:
    """Wait until everything in sight is painted; small maps come a little later."""
    for _ in range(PATIENCE // 200):
        page.wait_for_timeout(200)
        if page.evaluate("window.regardMap?.complete() && window.regardMap.hasText()"):
            break
    page.wait_for_timeout(2000)


def write(picture: bytes, path: Path) -> None:
    """Write a picture with as many colours as its size allows."""
    drawn = Image.open(BytesIO(picture)).convert("RGB")
    for colours in (256, 128, 64):
        # So that no colour is far off, however small what has it is.
        few = drawn.quantize(
            colours, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)
        if path.stat().st_size < LARGEST:
            return


if __name__ == "__main__":
    main()
