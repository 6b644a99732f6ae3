"""Builds what the pages need from `web/` and puts it into the package, for a wheel of any kind."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMES = ("page.js", "page.css")


class WebBuildHook(BuildHookInterface[Any]):
    """Runs before a wheel or a source distribution is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the parts of the page, unless this is a source distribution, which has them."""
        root = Path(self.root)
        assets = root / "src" / "regard" / "views" / "page" / "assets"
        if not (root / "PKG-INFO").exists() and not _is_fresh(root / "web", assets):
            _build(root / "web", assets)


def _is_fresh(web: Path, assets: Path) -> bool:
    """Say whether the parts are newer than all that they are made of."""
    if not all((assets / name).exists() for name in NAMES):
        return False
    built = min((assets / name).stat().st_mtime for name in NAMES)
    sources = [*(web / "src").rglob("*"), *web.glob("*.json"), *web.glob("*.*s")]
    return all(source.stat().st_mtime <= built for source in sources)


def _build(web: Path, assets: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "building regard from a checkout needs Node 20 or newer, with npm, for its pages; "
            "install it, or install regard from a wheel"
        )
    for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        done = subprocess.run([npm, *command], cwd=web, capture_output=True, text=True, check=False)
        if done.returncode:
            said = f"{done.stdout}\n{done.stderr}".strip()
            raise RuntimeError(f"`npm {' '.join(command)}` failed in web/:\n{said}")
    assets.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        shutil.copy(web / "dist" / name, assets / name)
