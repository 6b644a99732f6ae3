"""`regard map` and `regard publish`: what they take, write and say. Serving: tests/server."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from tests.server.made import Made, made_book

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_book(tmp_path_factory.mktemp("recordings") / "book.regard", tokens=40, heads=2)


def regard(*arguments: object, code: int = 0, stdin: str | None = None) -> tuple[str, str]:
    """Run the command in this process; return what it printed to stdout and stderr."""
    done = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.stderr
    return done.stdout, done.stderr


def test_publish_says_how_much_and_writes(book: Made, tmp_path: Path) -> None:
    site = tmp_path / "site"
    out, error = regard("publish", book.path, site, "--heads", "0.1, 1.mean", "--yes")
    assert out == ""
    size, where = error.splitlines()
    files = [path for path in (site / "data" / book.digest).rglob("*") if path.is_file()]
    # All but the description, which says what there is.
    assert size.startswith(f"{len(files) - 1:,} files, about ")
    assert where == str(site)
    info = json.loads((site / "data" / book.digest / "info.json").read_bytes())
    assert info["published"]["heads"] == [["0", "1"], ["1", "mean"]]


def test_publish_by_depth_and_pool(book: Made, tmp_path: Path) -> None:
    site = tmp_path / "site"
    regard("publish", book.path, site, "--heads", "0.0", "--depth", 0, "--pools", "max", "-y")
    tiles = site / "data" / book.digest / "tiles"
    assert {path.name for path in tiles.iterdir()} == {"c0-h0-max"}


def test_publish_asks_nobody_who_is_not_there(book: Made, tmp_path: Path) -> None:
    _, error = regard("publish", book.path, tmp_path / "site", code=1)
    assert error.splitlines()[-1] == "error: stdin is not a terminal: pass --yes"
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("command", ["map", "publish"])
def test_faults_are_one_line(command: str, book: Made, tmp_path: Path) -> None:
    more = [tmp_path / "site", "--yes"] if command == "publish" else ["--no-open"]
    missing = tmp_path / "none.regard"
    out, error = regard(command, missing, *more, code=1)
    assert out == ""
    assert error.startswith(f"error: {missing} does not exist: make one with ")
    assert error.count("\n") == 1
    damaged = tmp_path / "damaged.regard"
    shutil.copytree(book.path, damaged)
    description = damaged / "zarr.json"
    description.write_bytes(description.read_bytes()[:100])
    _, error = regard(command, damaged, *more, code=1)
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--heads", "9.9"], "error: heads must be LAYER.HEAD, from"),
        (["--depth", "7"], "error: depth must be from 0 to 0"),
        (["--pools", "median"], "error: pools must be mean or max, got median"),
    ],
)
def test_what_can_not_be_published(
    book: Made, tmp_path: Path, options: list[str], says: str
) -> None:
    _, error = regard("publish", book.path, tmp_path / "site", "--yes", *options, code=1)
    assert error.startswith(says)
    assert not (tmp_path / "site").exists()


def test_publish_does_not_replace_what_is_not_its_own(book: Made, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    _, error = regard("publish", book.path, tmp_path, "--yes", code=1)
    assert error.startswith(f"error: {tmp_path} has other files (notes.txt)")


def test_map_says_which_port_is_taken(book: Made) -> None:
    from regard.server.serve import listening

    with listening("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        _, error = regard("map", book.path, "--port", port, "--no-open", code=1)
    assert error == f"error: port {port} is in use: choose another with --port, or leave it out\n"


LOADED = """
import sys
from regard.cli.app import COMMANDS, load
for name in COMMANDS:
    load(name)
print(*(name for name in ("fastapi", "uvicorn", "zarr") if name in sys.modules))
"""


def test_other_commands_do_not_load_the_server(run_python: Callable[..., str]) -> None:
    assert run_python("-c", LOADED).split() == []


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "zarr"])
@pytest.mark.parametrize("command", ["map", "publish"])
def test_without_the_extra(missing: str, command: str, book: Made) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from regard.cli import main; main()"
    arguments = [command, str(book.path), *(["site"] if command == "publish" else [])]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f'error: the map needs {missing}: pip install "regard[map]"\n'
