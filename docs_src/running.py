"""Run the code of a page, and keep what it prints and draws.

A file is cut into sections by the markers that pages include it by:

    # --8<-- [start:weights]
    print(weights)
    # --8<-- [end:weights]

All of it runs in order and in one namespace, also what stands between sections, such as imports.
What each section prints is kept apart, so that a page can show it below the code.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from materials import minilm

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent

_MARKER = re.compile(r"--8<-- \[(?P<kind>start|end):(?P<name>[a-z][-_0-9a-z]*)\]")
_PICTURES = (".png", ".svg")


@dataclass(frozen=True)
class Source:
    """A file of code that belongs to a page.

    Attributes:
        path: the file, in a room such as `docs_src/learn`.
    """

    path: Path

    @property
    def room(self) -> str:
        """The folder that it is in, and its page in `docs`."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """The name of its page, and what its pictures begin with."""
        return self.path.stem.replace("_", "-")

    @property
    def page(self) -> Path:
        """The page that shows it."""
        return ROOT / "docs" / self.room / f"{self.name}.md"

    @property
    def kept_output(self) -> Path:
        """What it printed when it was last written down."""
        return self.path.parent / "outputs" / f"{self.path.stem}.txt"

    @property
    def kept_pictures(self) -> list[Path]:
        """What it drew when it was last written down."""
        return [
            path
            for path in sorted(self._images.glob("*"))
            if path.name.startswith(f"{self.name}-") and path.suffix in _PICTURES
        ]

    @property
    def needs_model(self) -> bool:
        """Whether it asks the environment for the folder of a real model."""
        return '"MODEL"' in self.path.read_text("utf-8")

    @property
    def _images(self) -> Path:
        return self.page.parent / "images"

    def write(self) -> None:
        """Run it, and write down what it prints and draws."""
        with tempfile.TemporaryDirectory() as folder:
            run = self.run(Path(folder))
            self.kept_output.parent.mkdir(parents=True, exist_ok=True)
            self.kept_output.write_text(run.as_text(), "utf-8")
            for path in self.kept_pictures:
                path.unlink()
            self._images.mkdir(parents=True, exist_ok=True)
            for name in run.pictures:
                (self._images / name).write_bytes((Path(folder) / name).read_bytes())

    def run(self, folder: Path) -> "Run":
        """Run it inside a folder, section by section."""
        printed: dict[str, str] = {}
        namespace = {"__name__": "__main__", "__file__": str(self.path)}
        with _inside(folder, self.needs_model), _same_pictures():
            for section in sections(self.path.read_text("utf-8")):
                # Empty lines before it, so that an error names the line of the file.
                code = compile("\n" * section.line + section.code, self.path, "exec")
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(code, namespace)
                if out.getvalue() and section.name is None:
                    raise ValueError(f"{self.path} prints outside its sections: {out.getvalue()}")
                if out.getvalue():
                    assert section.name is not None
                    printed[section.name] = out.getvalue()
        pictures = sorted(path.name for path in folder.iterdir() if path.suffix in _PICTURES)
        return Run(printed, pictures)


@dataclass(frozen=True)
class Run:
    """What a file printed and drew.

    Attributes:
        printed: what each section printed, of those that did.
        pictures: the names of the pictures that it drew.
    """

    printed: dict[str, str]
    pictures: list[str]

    def as_text(self) -> str:
        """Return what was printed, with the markers by which pages include it."""
        return "\n".join(
            f"--8<-- [start:{name}]\n{text.rstrip()}\n--8<-- [end:{name}]\n"
            for name, text in self.printed.items()
        )


@dataclass(frozen=True)
class Section:
    """A part of a file.

    Attributes:
        name: its name, or None between two sections.
        line: how many lines stand before it.
        code: the lines themselves.
    """

    name: str | None
    line: int
    code: str


def sources() -> list[Source]:
    """Return all files that belong to a page."""
    return [Source(path) for path in sorted(HERE.glob("*/*.py"))]


def sections(text: str) -> list[Section]:
    """Cut a file into its sections and what stands between them.

    Raises:
        ValueError: a marker opens what is open, or closes what isn't; or a name comes twice.
    """
    found: list[Section] = []
    name, first = None, 0
    lines = text.splitlines()
    for number, line in enumerate(lines):
        marker = _MARKER.search(line)
        if marker is None:
            continue
        opens = marker["kind"] == "start"
        if opens and (name is not None or marker["name"] in {part.name for part in found}):
            raise ValueError(f"line {number + 1} starts a second section: {line}")
        if not opens and marker["name"] != name:
            raise ValueError(f"line {number + 1} ends a section that is not open: {line}")
        found.append(Section(name, first, "\n".join(lines[first:number])))
        name, first = marker["name"] if opens else None, number + 1
    if name is not None:
        raise ValueError(f"section {name} has no end")
    return [*found, Section(None, first, "\n".join(lines[first:]))]


@contextlib.contextmanager
def _inside(folder: Path, model: bool) -> Iterator[None]:
    """Be in a folder, with a real model at hand if one is needed, called without arguments."""
    variables, arguments = dict(os.environ), sys.argv
    # What is drawn on another day is the same file.
    os.environ.update({"MPLBACKEND": "Agg", "SOURCE_DATE_EPOCH": "0"})
    if model:
        os.environ["MODEL"] = str(minilm())
    sys.argv = arguments[:1]
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(variables)


@contextlib.contextmanager
def _same_pictures() -> Iterator[None]:
    """Draw the same file in each run, and leave no figure open."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    try:
        with matplotlib.rc_context({"svg.hashsalt": "regard", "savefig.facecolor": "white"}):
            yield
    finally:
        pyplot.close("all")
