"""A published folder: complete, the same as the server's answers, and safely written."""

import json
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from regard.recording import RecordingError
from regard.recording import open as open_recording
from regard.server import publish
from regard.server.estimate import estimate
from regard.server.publication import planned
from tests.server.made import Made
from tests.server.running import Running

pytestmark = pytest.mark.usefixtures("one_thread")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def static_site(folder: Path) -> Generator[httpx.Client]:
    """Serve a folder as any web server does."""
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with httpx.Client(base_url=url, trust_env=False) as client:
            yield client
        server.shutdown()
        thread.join()


def asked_for(info: dict[str, Any]) -> set[str]:
    """Return every path that a viewer may ask for, by what the layout says, not by our code."""
    paths = {"info.json", *(f"text/{number}.json" for number in range(len(info["texts"])))}
    paths |= {f"thumbs/{call['call']}.bin" for call in info["calls"]}
    published, size = info["published"], info["tileSize"]
    maps = [
        ("all", info["calls"][0])
        if call == "all"
        else (f"c{call}-h{head}", info["calls"][int(call)])
        for call, head in published["heads"]
    ]
    for name, call in maps:
        for z in range(min(call["maxZoom"], published["maxZoom"]) + 1):
            wide = size * 2 ** (call["maxZoom"] - z)
            for pool in published["pools"]:
                for x in range(2**z):
                    for y in range(2**z):
                        inside = x * wide < call["keys"] and y * wide < call["queries"]
                        # Its first key is after its last query.
                        empty = call["causal"] and x * wide > (y + 1) * wide - 1
                        if inside and not empty:
                            paths.add(f"tiles/{name}-{pool}/{z}/{x}/{y}.bin")
                    for line, axis in (("received", "keys"), ("entropy", "queries")):
                        if name != "all" and x * wide < call[axis]:
                            paths.add(f"lines/{name}-{line}-{pool}/{z}/{x}.bin")
        blocks = range(0, call["queries"], info["rowBlock"])
        paths |= {f"rows/{name}/{first // info['rowBlock']}.json" for first in blocks}
    return paths


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pair", {}),
        ("book", {"heads": ["0.1", "1.mean"]}),
        ("book", {"heads": ["1.2"], "depth": 0, "pools": ["max"]}),
        ("book", {"heads": ["mean"], "depth": 2, "pools": ["mean"]}),
    ],
)
def test_all_that_can_be_asked_for_is_there(
    running: Running, tmp_path: Path, request: Any, name: str, options: dict[str, Any]
) -> None:
    made: Made = request.getfixturevalue(name)
    folder = publish(made.recording, tmp_path / "site", **options)
    with static_site(folder) as client:
        assert "map.js" in client.get("/").text
        assert client.get("/map.js").content == (folder / "map.js").read_bytes()
        listed = client.get("/recordings.json").json()
        assert listed["live"] is False
        assert [one["digest"] for one in listed["recordings"]] == [made.digest]
        below = f"/data/{made.digest}"
        info = client.get(f"{below}/info.json").json()
        assert info["live"] is False
        wanted = asked_for(info)
        for path in wanted:
            answer = client.get(f"{below}/{path}")
            assert answer.status_code == 200, path
            if path != "info.json":
                # What the server says, byte by byte.
                assert answer.content == running.get(f"{below}/{path}").content, path
    assert files_in(folder / "data" / made.digest) == wanted
    assert files_in(folder) - {f"data/{made.digest}/{path}" for path in wanted} == {
        "engine.js",
        "index.html",
        "map.css",
        "map.js",
        "recordings.json",
    }


def test_what_is_published_is_told(book: Made, tmp_path: Path) -> None:
    heads = ["0.1", "1.mean", "mean", "0.1"]
    folder = publish(book.recording, tmp_path / "site", heads=heads, depth=1)
    info = json.loads((folder / "data" / book.digest / "info.json").read_bytes())
    assert info["published"] == {
        "heads": [["0", "1"], ["1", "mean"], ["all", "mean"]],
        "maxZoom": 1,
        "pools": ["mean", "max"],
    }


def test_of_two_texts(pair: Made, tmp_path: Path) -> None:
    folder = publish(pair.recording, tmp_path / "site", heads=["all"], depth=1)
    info = json.loads((folder / "data" / pair.digest / "info.json").read_bytes())
    assert [head for _, head in info["published"]["heads"]] == ["mean", "0", "1"]
    assert asked_for(info) == files_in(folder / "data" / pair.digest)


def test_it_says_beforehand_how_much_it_is(book: Made, tmp_path: Path) -> None:
    heads = ["0.0", "1.2", "0.mean", "mean"]
    expected = estimate(planned(book.recording, heads=heads, depth=2))
    folder = publish(book.recording, tmp_path / "site", heads=heads, depth=2)
    below = folder / "data" / book.digest
    files = [below / name for name in files_in(below) - {"info.json"}]
    assert expected.files == len(files)
    size = sum(path.stat().st_size for path in files)
    assert expected.bytes == pytest.approx(size, rel=0.25)
    assert str(expected).startswith(f"{len(files):,} files, about ")


def test_an_earlier_publication_is_replaced(book: Made, pair: Made, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    publish(book.recording, folder, heads=["0.0"], depth=0)
    publish(pair.recording, folder, depth=0)
    assert [one.name for one in (folder / "data").iterdir()] == [pair.digest]
    assert [one.name for one in tmp_path.iterdir()] == ["site"]


def test_what_is_not_ours_is_not_replaced(book: Made, tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("ten years of work")
    with pytest.raises(FileExistsError, match=r"other files \(chapter\.txt\).*choose a new"):
        publish(book.recording, folder, heads=["0.0"], depth=0)
    # Of a page of one's own, too.
    (folder / "chapter.txt").rename(folder / "index.html")
    with pytest.raises(FileExistsError, match="is not empty"):
        publish(book.recording, folder, heads=["0.0"], depth=0)
    assert files_in(tmp_path) == {"thesis/index.html"}
    with pytest.raises(FileExistsError, match="is a link or a file, and must be a folder"):
        publish(book.recording, folder / "index.html")
    site = publish(book.recording, tmp_path / "site", heads=["0.0"], depth=0)
    (site / "CNAME").write_text("example.org")
    with pytest.raises(FileExistsError, match="CNAME"):
        publish(book.recording, site, heads=["0.0"], depth=0)


def test_nothing_is_left_if_it_fails(book: Made, tmp_path: Path) -> None:
    folder = publish(book.recording, tmp_path / "site", heads=["0.0"], depth=0)
    before = files_in(folder)
    with TemporaryDirectory() as elsewhere:
        copy = Path(elsewhere) / "copy.regard"
        shutil.copytree(book.path, copy)
        for chunk in (copy / "calls/0001/key/c").rglob("*"):
            if chunk.is_file():
                chunk.write_bytes(chunk.read_bytes()[:20])
        with pytest.raises(RecordingError, match="damaged"):
            publish(open_recording(copy), folder, depth=0)
    assert files_in(folder) == before
    assert [one.name for one in tmp_path.iterdir()] == ["site"]


def test_what_one_that_was_killed_has_left_goes(book: Made, tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish(book.recording, site, heads=["0.0"], depth=0)
    # Killed while it wrote, and another while it removed the one before.
    for left in ("site.partial", "site.replaced"):
        (tmp_path / left / "data").mkdir(parents=True)
        (tmp_path / left / "map.js").write_text("1;")
    publish(book.recording, site, heads=["0.1"], depth=0)
    assert [one.name for one in tmp_path.iterdir()] == ["site"]
    # Killed between two names: the one before is there still, and is replaced.
    site.rename(tmp_path / "site.replaced")
    publish(book.recording, site, heads=["0.0"], depth=0)
    assert [one.name for one in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"heads": ["9.0"]},
            "heads must be LAYER.HEAD, from 0.0 to 1.2, LAYER.mean, mean, or all, got '9.0'",
        ),
        ({"heads": ["<b>"]}, "or all, got '<b>'"),
        ({"heads": []}, "heads must not be empty"),
        ({"depth": 3}, "depth must be from 0 to 2"),
        ({"depth": -1}, "depth must be from 0 to 2"),
        ({"pools": ["median"]}, "pools must be mean or max, got median"),
        ({"pools": []}, "pools must be mean or max, got none"),
    ],
)
def test_what_can_not_be_published(book: Made, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        planned(book.recording, **options)
