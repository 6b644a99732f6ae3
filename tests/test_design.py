"""DESIGN.md says what is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/regard"
DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
LONGEST = [4, 7, 8, 8, 10, 8, 14]
"""How many files each path may have."""


def reading_paths() -> list[list[str]]:
    section = DESIGN.split("## Reading paths", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    return [re.findall(r"`([\w/]+)`", row) for row in rows]


def imported(name: str) -> set[str]:
    """Return the files that a file imports, by their paths; also those that a package hands on."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((SOURCE / f"{name}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard."):
            path = "/".join((node.module or "").split(".")[1:])
            for one in (path, *(f"{path}/{alias.name}" for alias in node.names)):
                package = f"{one}/__init__"
                is_package = (SOURCE / f"{package}.py").is_file() and package != name
                found |= {one, *(imported(package) if is_package else ())}
    return found


@pytest.mark.parametrize("number", range(len(LONGEST)))
def test_a_reading_path_is_a_chain_of_imports(number: int) -> None:
    first, *others = reading_paths()[number]
    assert 1 + len(others) <= LONGEST[number]
    reached = imported(first)
    for name in others:
        assert (SOURCE / f"{name}.py").is_file(), name
        assert name in reached, f"no file before {name} imports it"
        reached |= imported(name)


def test_every_reading_path_is_checked() -> None:
    assert len(reading_paths()) == len(LONGEST)


def test_the_glossary_is_short() -> None:
    section = DESIGN.split("## Our own words", 1)[1].split("\n## ", 1)[0]
    words = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert 0 < len(words) <= 20


def test_every_package_is_named() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    tree = DESIGN.split("## The packages", 1)[1].split("```")[1]
    assert {
        name for name in re.findall(r"(\w+)/", tree) if name not in ("src", "regard")
    } == packages
