"""The code of the documentation runs, and pages show what it prints and draws."""

import ast
import re
from pathlib import Path

import pytest

from docs_src.running import ROOT, Source, sections, sources

pytestmark = pytest.mark.slow

SOURCES = [pytest.param(source, id=f"{source.room}/{source.name}") for source in sources()]
LESSONS = sorted(page for page in ROOT.glob("docs/learn/*.md") if page.stem != "index")
PAGES = sorted(ROOT.glob("docs/**/*.md"))

INCLUDED = re.compile(r'^\s*-+8<-+ "(?P<path>[^":]+)(?::(?P<section>[^"]+))?"$', re.MULTILINE)
QUOTED = {
    # Read off a picture of the gallery, a report of the atlas.
    "real-model": {"2.8", "0.79", "0.58", "2.0", "0.73", "0.36"},
    # The clock of a machine.
    "recurrent": {"2.5"},
}
"""Figures in the prose of lessons that are not those of their own code."""

DECIMAL = re.compile(r"\d+\.\d+")
SHOWN = re.compile(r"!\[(?P<text>[^\]]*)\]\(images/(?P<name>[^)]+)\)")


def included(page: Path, path: Path) -> list[str]:
    """Return the sections of a file that a page includes."""
    return [
        found["section"]
        for found in INCLUDED.finditer(page.read_text("utf-8"))
        if ROOT / found["path"] == path
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_kept_is_what_it_prints_and_draws(
    source: Source, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if source.needs_model:
        request.getfixturevalue("quiet_transformers")
    run = source.run(tmp_path)
    assert_alike(run.as_text(), source.kept_output.read_text("utf-8"))
    assert run.pictures == [path.name for path in source.kept_pictures]


def assert_alike(found: str, kept: str) -> None:
    """Compare what is printed, but for rounding: processors differ in the last digit."""
    assert DECIMAL.split(found) == DECIMAL.split(kept)
    for one, other in zip(DECIMAL.findall(found), DECIMAL.findall(kept), strict=True):
        digits = len(other.partition(".")[2])
        assert len(one.partition(".")[2]) == digits, (one, other)
        unit = 10.0**-digits
        assert float(one) == pytest.approx(float(other), rel=0, abs=1.01 * unit), (one, other)


def test_a_difference_beyond_rounding_is_noticed() -> None:
    assert_alike("loss 2.4, 17 keys", "loss 2.3, 17 keys")
    for other in ("loss 2.2, 17 keys", "loss 2.4, 18 keys", "loss 2.40, 17 keys", "loss 2.4"):
        with pytest.raises(AssertionError):
            assert_alike("loss 2.4, 17 keys", other)


@pytest.mark.parametrize("source", SOURCES)
def test_its_page_shows_all_of_it(source: Source) -> None:
    parts = [part.name for part in sections(source.path.read_text("utf-8")) if part.name]
    assert included(source.page, source.path) == parts
    printed = [part.name for part in sections(source.kept_output.read_text("utf-8")) if part.name]
    assert included(source.page, source.kept_output) == printed
    shown = SHOWN.findall(source.page.read_text("utf-8"))
    assert sorted(name for _, name in shown) == [path.name for path in source.kept_pictures]
    assert all(text for text, _ in shown), "a picture needs words for those who can't see it"


@pytest.mark.parametrize("source", SOURCES)
def test_a_reader_who_copies_its_blocks_has_all_of_it(source: Source) -> None:
    parts = sections(source.path.read_text("utf-8"))
    rest = ast.parse("\n".join(part.code for part in parts if part.name is None))
    assert [ast.unparse(line) for line in rest.body[1:]] == []
    assert ast.get_docstring(rest)


@pytest.mark.parametrize("source", SOURCES)
def test_its_pictures_are_small_and_opaque(source: Source) -> None:
    for path in source.kept_pictures:
        assert path.stat().st_size < 400_000
        if path.suffix == ".svg":
            assert path.stat().st_size < 150_000
            # The first thing drawn covers all of it: pages are dark too.
            assert 'style="fill: #ffffff' in path.read_text("utf-8")[:3_000]


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_a_lesson_has_code_a_picture_and_an_exercise(page: Path) -> None:
    source = Source(ROOT / "docs_src/learn" / f"{page.stem.replace('-', '_')}.py")
    assert included(page, source.path)
    assert source.kept_pictures
    text = page.read_text("utf-8")
    assert text.startswith("# ")
    exercise = text.partition("\n## Exercise\n")[2]
    test = f"tests/learn/test_{source.path.stem}.py"
    assert f'--8<-- "{test}:solution"' in exercise
    assert "\ndef test_" in (ROOT / test).read_text("utf-8")
    assert "\nNext: [" in exercise


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_figures_in_the_prose_of_a_lesson_are_those_of_its_code(page: Path) -> None:
    source = Source(ROOT / "docs_src/learn" / f"{page.stem.replace('-', '_')}.py")
    known = source.kept_output.read_text("utf-8") + source.path.read_text("utf-8")
    decimals = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.\d+", known)]
    percentages = [float(number) for number in re.findall(r"\d+(?= ?%)", known)]
    for figure in figures(prose(page)) - QUOTED.get(page.stem, set()):
        digits = len(figure.partition(".")[2])
        # Figures may be rounded, and a share may be said in percent.
        possible = decimals if digits else [*percentages, *(100 * share for share in decimals)]
        assert float(figure) in {round(number, digits) for number in possible}, figure


def prose(page: Path) -> str:
    """Return a page without its code, what is indented, and the addresses of its links."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*$|`[^`]*`|\]\([^)]*\)", "", text, flags=re.MULTILINE)


def figures(text: str) -> set[str]:
    """Return the decimals and percentages of a text."""
    return set(re.findall(r"(?<![\w.])(?:\d+\.\d+(?![\w.]*\d)|\d+(?= ?%))", text))


def test_figures_are_found() -> None:
    assert figures("0.47 of 3 tokens: 47 %, 8%, or version 1.2.3.") == {"0.47", "47", "8"}


def test_lessons_are_found_and_listed() -> None:
    assert LESSONS
    index = (ROOT / "docs/learn/index.md").read_text("utf-8")
    listed = re.findall(r"\]\(([a-z-]+)\.md\)", index)
    assert set(listed) >= {page.stem for page in LESSONS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_what_a_page_includes_is_there(page: Path) -> None:
    for found in INCLUDED.finditer(page.read_text("utf-8")):
        path = ROOT / found["path"]
        assert path.is_file(), found[0]
        if found["section"]:
            names = {part.name for part in sections(path.read_text("utf-8"))}
            assert found["section"] in names, found[0]


def test_code_runs_by_sections_in_one_namespace(tmp_path: Path) -> None:
    path = tmp_path / "two_steps.py"
    path.write_text(
        "import pathlib\n"
        "# --8<-- [start:first]\n"
        "number = 3\n"
        "print(number)\n"
        "# --8<-- [end:first]\n"
        "number += 1\n"
        "# --8<-- [start:silent]\n"
        "pathlib.Path('two-steps-drawn.svg').write_text('<svg/>')\n"
        "# --8<-- [end:silent]\n"
        "# --8<-- [start:second]\n"
        "print(number)\n"
        "# --8<-- [end:second]\n"
    )
    source, folder = Source(path), tmp_path / "inside"
    folder.mkdir()
    run = source.run(folder)
    assert source.name == "two-steps"
    assert run.printed == {"first": "3\n", "second": "4\n"}
    assert run.pictures == ["two-steps-drawn.svg"]
    assert run.as_text() == (
        "--8<-- [start:first]\n3\n--8<-- [end:first]\n\n"
        "--8<-- [start:second]\n4\n--8<-- [end:second]\n"
    )


def test_an_error_names_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("first = 1\n# --8<-- [start:here]\nfirst = first / 0\n# --8<-- [end:here]\n")
    with pytest.raises(ZeroDivisionError) as caught:
        Source(path).run(tmp_path)
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno) == (path, 2)


def test_printing_outside_sections_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "loud.py"
    path.write_text("print('lost')\n")
    with pytest.raises(ValueError, match="prints outside its sections: lost"):
        Source(path).run(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# --8<-- [start:one]\n", "section one has no end"),
        ("# --8<-- [end:one]\n", "line 1 ends a section that is not open"),
        ("# --8<-- [start:one]\n# --8<-- [end:two]\n", "line 2 ends a section that is not open"),
        ("# --8<-- [start:one]\n# --8<-- [start:two]\n", "line 2 starts a second section"),
        ("# --8<-- [start:one]\n# --8<-- [end:one]\n" * 2, "line 3 starts a second section"),
    ],
)
def test_markers_that_do_not_pair_are_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sections(text)
