"""Every example in the documentation and in docstrings gives what is printed."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def with_examples(pattern: str) -> list[Path]:
    return [path for path in sorted(ROOT.glob(pattern)) if ">>> " in path.read_text("utf-8")]


PAGES = with_examples("docs/**/*.md")
MODULES = with_examples("src/regard/**/*.py")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Path) -> None:
    found = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_module(path: Path) -> None:
    """Docstrings are read from the file: doctest passes over functions whose shapes are checked."""
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    text = path.read_text("utf-8")
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            words = ast.get_docstring(node) or ""
            line = getattr(node, "lineno", 1)
            runner.run(parser.get_doctest(words, dict(vars(module)), name, str(path), line))
    assert runner.tries == text.count(">>> ")
    assert runner.failures == 0


def test_pages_and_modules_are_found() -> None:
    assert PAGES
    assert MODULES
