"""Builds what the pages need from `web/` and puts it into the package, for a wheel of any kind."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src") / "regard"
PLACES = {
    "page.js": PACKAGE / "views" / "page" / "assets" / "page.js",
    "page.css": PACKAGE / "views" / "page" / "assets" / "page.css",
    "atlas.js": PACKAGE / "atlas" / "assets" / "atlas.js",
    "atlas.css": PACKAGE / "atlas" / "assets" / "atlas.css",
    "attribution.js": PACKAGE / "attribution" / "assets" / "attribution.js",
    "attribution.css": PACKAGE / "attribution" / "assets" / "attribution.css",
    "map.js": PACKAGE / "server" / "assets" / "map.js",
    "map.js.gz": PACKAGE / "server" / "assets" / "map.js.gz",
    "map.css": PACKAGE / "server" / "assets" / "map.css",
    "map.css.gz": PACKAGE / "server" / "assets" / "map.css.gz",
    "engine.js": PACKAGE / "server" / "assets" / "engine.js",
    "engine.js.gz": PACKAGE / "server" / "assets" / "engine.js.gz",
    "map.html": PACKAGE / "server" / "assets" / "index.html",
}
"""What `web/` is built into, and where in the package it goes."""


class WebBuildHook(BuildHookInterface[Any]):
    """Runs before a wheel or a source distribution is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the pages, unless this is a source distribution, which has them."""
        root = Path(self.root)
        if not (root / "PKG-INFO").exists() and not _is_fresh(root):
            _build(root)


def _is_fresh(root: Path) -> bool:
    """Say whether the parts are newer than all that they are made of."""
    places = [root / place for place in PLACES.values()]
    if not all(place.exists() for place in places):
        return False
    built = min(place.stat().st_mtime for place in places)
    web = root / "web"
    sources = [*(web / "src").rglob("*"), *web.glob("*.json"), *web.glob("*.*s")]
    return all(source.stat().st_mtime <= built for source in sources)


def _build(root: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "building regard from a checkout needs Node 20 or newer, with npm, for its pages; "
            "install it, or install regard from a wheel"
        )
    web = root / "web"
    for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        done = subprocess.run([npm, *command], cwd=web, capture_output=True, text=True, check=False)
        if done.returncode:
            said = f"{done.stdout}\n{done.stderr}".strip()
            raise RuntimeError(f"`npm {' '.join(command)}` failed in web/:\n{said}")
    for name, place in PLACES.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(web / "dist" / name, root / place)
