"""Which tests run for a change: those that can import what changed, and never fewer."""

import tomllib
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
FAULTS = tomllib.loads((PROJECT / ".ci/faults.toml").read_text("utf-8"))

HOME = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from regard.typed import nothing
_NAMES = {"shown": ("draw",), "deep.room": ("dig",)}
"""
SOURCE = {
    "__init__.py": HOME,
    "typed.py": "nothing = 0",
    "shown.py": "def draw():\n    from . import paint",
    "paint.py": "",
    "deep/__init__.py": "",
    "deep/room.py": "from ..paint import colour",
    "deep/data.json": "{}",
    "commands/__init__.py": "import importlib as i\ni.import_module(f'regard.commands.{1}')",
    "commands/first.py": "",
}
TESTS = {
    "conftest.py": "import pytest",
    "help/__init__.py": "",
    "help/helper.py": "import regard.shown",
    "shown/conftest.py": "from regard.deep import room",
    "shown/test_fixture.py": "def test(made): ...",
    "test_attribute.py": "import regard\ndef test():\n    regard.draw()",
    "test_alias.py": "import regard as r\ndef test():\n    r.dig()",
    "test_string.py": "CODE = 'import os; from regard.paint import colour'",
    "test_helper.py": "from tests.help.helper import it",
    "test_commands.py": "from regard import commands",
    "test_reader.py": "from pathlib import Path\nPAGE = Path(__file__).parents[1] / 'docs/page.md'",
    "reading.py": "from pathlib import Path\nROOT = Path(__file__).parent",
    "test_by_helper.py": "from tests.reading import ROOT",
    "test_alone.py": "import regard",
}
READER = "tests/test_reader.py"


def loaded() -> Any:
    loader = SourceFileLoader("affected", str(PROJECT / ".ci/affected"))
    spec = spec_from_loader("affected", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def project() -> Any:
    """The selection, in this project, whose files it reads once."""
    return loaded()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The selection, in a small project."""
    for folder, files in (("src/regard", SOURCE), ("tests", TESTS)):
        for name, text in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    module = loaded()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("src/regard/paint.py", "alias attribute fixture helper by_helper reader string"),
        ("src/regard/shown.py", "attribute helper by_helper reader"),
        ("src/regard/deep/room.py", "alias fixture by_helper reader"),
        ("src/regard/deep/data.json", "alias fixture by_helper reader"),
        ("src/regard/commands/first.py", "commands by_helper reader"),
        ("src/regard/typed.py", "by_helper reader"),
        ("tests/help/helper.py", "helper by_helper reader"),
        ("tests/test_alone.py", "alone by_helper reader"),
        ("docs/page.md", "by_helper reader"),
    ],
)
def test_by_every_kind_of_import(small: Any, changed: str, expected: str) -> None:
    names = [Path(file).stem.removeprefix("test_") for file in small.affected([changed])]
    assert {*names} - {"README"} == {*expected.split()}


def test_settings_of_all_tests_affect_all(small: Any) -> None:
    found = small.affected(["tests/conftest.py"])
    assert found == sorted(f"tests/{name}" for name in TESTS if "test_" in name)


@pytest.mark.parametrize(
    "changed",
    ["pyproject.toml", ".ci/constraints.txt", "Makefile", "src/regard/gone.py", "new/a.py"],
)
def test_what_is_unknown_or_gone_affects_all(small: Any, changed: str) -> None:
    assert small.affected(["docs/page.md", changed]) is None


@pytest.mark.parametrize(
    ("changed", "readme"),
    [("docs/a.md", False), ("src/regard/paint.py", True), ("README.md", True), (READER, False)],
)
def test_the_readme_runs_if_it_or_the_package_changed(
    small: Any, changed: str, readme: bool
) -> None:
    assert ("README.md" in small.affected([changed])) == readme


def test_every_fault_is_looked_for_where_it_is_noticed() -> None:
    for name, fault in FAULTS.items():
        assert fault["near"] in project().affected([fault["file"]]), name


def test_built_pages_are_tested_if_their_source_changed() -> None:
    found = project().affected(["web/src/page/anything.ts"])
    for file in (
        "views/page/test_page.py",
        "server/test_first_picture.py",
        "attribution/test_page.py",
    ):
        assert f"tests/{file}" in found or not (PROJECT / "tests" / file).exists()
