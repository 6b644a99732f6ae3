"""Every example in the documentation gives what is printed."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


PAGES = [page for page in sorted(ROOT.glob("docs/**/*.md")) if ">>> " in page.read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Path) -> None:
    found = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert found.attempted > 0
    assert found.failed == 0


def test_pages_are_found() -> None:
    assert PAGES
