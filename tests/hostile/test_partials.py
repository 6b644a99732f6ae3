"""What somebody has left as `NAME.partial` is refused in one line, or nothing of it stays."""

import hashlib
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.recording import open
from tests.hostile.mutations import SECRET
from tests.hostile.partials import PARTIALS, record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("unchecked", "one_thread"),
    pytest.mark.skipif(sys.platform != "linux", reason="pipes, links and sparse files"),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("partials") / "it.regard"
    record(path)
    return path


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """End what hangs."""
    signal.alarm(120)
    yield
    signal.alarm(0)


def content(path: Path) -> dict[str, str]:
    """Return the SHA-256 of every file, or what else it is."""
    found: dict[str, str] = {}
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        if file.is_symlink() or not file.is_file():
            found[name] = "link" if file.is_symlink() else "folder"
        else:
            found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def numbers(path: Path) -> dict[str, str]:
    """Return the content of a recording, but for the date and what follows from it."""
    found = content(path)
    description = json.loads((path / "zarr.json").read_bytes())
    said = description["attributes"]["regard"]
    assert {said.pop(name) is None for name in ("date", "digest")} == {False}
    return found | {"zarr.json": json.dumps(description, sort_keys=True)}


def said(path: Path) -> str | None:
    """Record, and return how that was refused."""
    try:
        record(path)
    except FileExistsError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", PARTIALS)
def test_a_partial_is_refused_in_one_line_or_nothing_of_it_stays(
    good: Path, tmp_path: Path, name: str
) -> None:
    path, left = tmp_path / "it.regard", tmp_path / "it.regard.partial"
    shutil.copytree(good, left)
    PARTIALS[name](left)
    victim = content(tmp_path / "victim")
    refused = said(path)
    if refused is not None:
        assert len(refused.splitlines()) == 1
        assert not path.exists()
    else:
        assert numbers(path) == numbers(good)
        assert not any(SECRET in file.read_bytes() for file in path.rglob("*") if file.is_file())
        assert not left.exists()
        open(path).tile(0, 0, 0, 0, 0)
    assert content(tmp_path / "victim") == victim
