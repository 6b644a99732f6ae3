"""The page of dependencies lists what users may install, as pyproject.toml has it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"[\w-]+")
ROW = re.compile(r"^\| `([\w-]+)` \| ([^|]*) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


def test_the_page_lists_all_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    # `all` is made of the others, and the tools of developers are named in a sentence.
    wanted = {"always": project["dependencies"]} | {
        extra: extras[extra] for extra in extras if extra not in ("all", "dev")
    }
    expected = {
        (package, extra)
        for extra, packages in wanted.items()
        for package in (NAME.findall(one)[0] for one in packages)
        if package != "regard"
    }
    page = (ROOT / "docs" / "design" / "dependencies.md").read_text("utf-8")
    described = {
        (package, extra.strip("` "))
        for package, extras_of_it in ROW.findall(page)
        for extra in extras_of_it.split(",")
    }
    assert described == expected
