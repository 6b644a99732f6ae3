"""How the server answers: headers, what is asked twice, what is not there, what is wrong."""

import gzip
import re
from hashlib import sha256

import pytest

from regard.server.assets import ASSETS, assets, packed_assets
from tests.server.made import Made
from tests.server.running import VIEWER, Running, served

pytestmark = pytest.mark.usefixtures("one_thread")

FOREVER = "public, max-age=31536000, immutable"


def paths(book: Made) -> list[str]:
    """Return an address of each kind below that of a recording."""
    below = f"/data/{book.digest}"
    return [
        f"{below}/text/0.json",
        f"{below}/tiles/c0-h1-mean/1/0/1.bin",
        f"{below}/tiles/all-max/0/0/0.bin",
        f"{below}/lines/c0-h1-entropy-max/1/0.bin",
        f"{below}/thumbs/0.bin",
        f"{below}/rows/c0-hmean/3.json",
        f"{below}/columns/c0-h1/3.json",
        f"{below}/looks/from/0/30.json",
        f"{below}/weight/c0-h1/30/3.json",
        f"{below}/edges/c0-h1.json?y0=0&y1=10&x0=0&x1=10",
        f"{below}/search.json?text=word",
    ]


def test_what_is_below_a_digest_may_be_kept_for_good(running: Running, book: Made) -> None:
    for path in paths(book):
        answer = running.get(path)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == FOREVER
        assert answer.headers["Content-Length"] == str(len(answer.content))
        again = running.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["Cache-Control"] == FOREVER
        changed = running.get(path, headers={"If-None-Match": '"another"'})
        assert changed.content == answer.content


def test_what_may_change_is_asked_for_again(running: Running, book: Made) -> None:
    for path in ("/", "/map.js", "/recordings.json", f"/data/{book.digest}/info.json"):
        answer = running.get(path)
        assert answer.headers["Cache-Control"] == "no-cache"
        again = running.get(path, headers={"If-None-Match": f'"x", {answer.headers["ETag"]}'})
        assert again.status_code == 304


def test_the_viewer(running: Running) -> None:
    kinds = {
        "index.html": "text/html",
        "map.js": "text/javascript",
        "map.css": "text/css",
        "engine.js": "text/javascript",
    }
    assert set(kinds) == set(ASSETS)
    for name, kind in kinds.items():
        answer = running.get(f"/{name}")
        assert answer.content == VIEWER[name]
        assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
    assert running.get("/").content == VIEWER["index.html"]


def test_what_the_page_loads_may_be_kept_for_good(book: Made) -> None:
    with served(book.recording, static=None) as running:
        page = running.get("/").text
        loaded = re.findall(r'"((?:map|engine)\.\w+)\?v=(\w+)"', page)
        assert sorted(name for name, _ in loaded) == ["engine.js", "map.css", "map.js"]
        for name, version in loaded:
            answer = running.get(f"/{name}?v={version}")
            assert version == sha256(answer.content).hexdigest()[: len(version)]
            assert answer.headers["Cache-Control"] == FOREVER
            # By another name it may be something else tomorrow.
            for other in (f"/{name}", f"/{name}?v=0123456789abcdef", f"/{name}?w={version}"):
                assert running.get(other).headers["Cache-Control"] == "no-cache"
    with served(book.recording, static=None, token="secret") as running:
        kept = running.get(f"/{name}?v={version}").headers["Cache-Control"]
        assert kept == FOREVER.replace("public", "private")


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("identity", False),
        ("gzip;q=0, br", False),
        ("br, gzip; q=0.0", False),
        ("", False),
    ],
)
def test_the_viewer_is_packed_for_those_who_can_unpack(
    book: Made, accepted: str, is_packed: bool
) -> None:
    assert set(packed_assets()) == set(ASSETS) - {"index.html"}
    with served(book.recording, static=None) as running:
        for name, packed in packed_assets().items():
            assert gzip.decompress(packed) == assets()[name]
            assert len(packed) < 0.5 * len(assets()[name])
            path = f"/{name}"
            with running.client.stream("GET", path, headers={"Accept-Encoding": accepted}) as got:
                body = b"".join(got.iter_raw())
            assert body == (packed if is_packed else assets()[name])
            assert got.headers.get("Content-Encoding") == ("gzip" if is_packed else None)
            assert got.headers["Vary"] == "Accept-Encoding"
            assert got.headers["Content-Length"] == str(len(body))
            both = {"Accept-Encoding": accepted, "If-None-Match": got.headers["ETag"]}
            assert running.get(path, headers=both).status_code == 304
            # The other form has another name, so that nobody is told that it is as it was.
            other = "identity" if is_packed else "gzip"
            both = {"Accept-Encoding": other, "If-None-Match": got.headers["ETag"]}
            assert running.get(path, headers=both).status_code == 200
        plain = running.get("/")
        assert "Content-Encoding" not in plain.headers
        assert "Vary" not in plain.headers


def test_bytes_are_the_same_in_another_process(running: Running, book: Made) -> None:
    # Another server has computed nothing yet.
    with served(book.recording) as other:
        for path in paths(book):
            assert other.get(path).content == running.get(path).content
            assert other.get(path).headers["ETag"] == running.get(path).headers["ETag"]


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/nothing", 404, "no such address"),
        ("/data/0123456789abcdef/info.json", 404, "no recording 0123456789abcdef"),
        ("/data/ABC/info.json", 422, "digest"),
        ("/data/{digest}/text/1.json", 404, "text must be below 1, got 1"),
        ("/data/{digest}/tiles/c2-h0-mean/0/0/0.bin", 404, "2 calls"),
        ("/data/{digest}/tiles/c0-h3-mean/0/0/0.bin", 404, "head must be from 0 to 2"),
        ("/data/{digest}/tiles/c0-h0-mean/3/0/0.bin", 404, "level must be from 0 to 2"),
        ("/data/{digest}/tiles/c0-h0-mean/1/2/0.bin", 404, "x must be from 0 to 1"),
        ("/data/{digest}/tiles/c0-h0-median/0/0/0.bin", 422, "tileset"),
        ("/data/{digest}/tiles/c0-h0-mean/-1/0/0.bin", 422, "level"),
        ("/data/{digest}/tiles/c0-h0-mean/0/0/0.png", 404, "no such address"),
        ("/data/{digest}/lines/c0-h0-mass-mean/0/0.bin", 422, "line"),
        ("/data/{digest}/thumbs/2.bin", 404, "2 calls"),
        ("/data/{digest}/rows/c0-h0/38.json", 404, "38 blocks of rows"),
        ("/data/{digest}/columns/c0-h0/600.json", 404, "keys 0 to 599"),
        ("/data/{digest}/looks/from/0/600.json", 404, "text 0 has tokens 0 to 599, got 600"),
        ("/data/{digest}/looks/at/1/0.json", 404, "1 texts"),
        ("/data/{digest}/looks/to/0/0.json", 422, "direction"),
        ("/data/{digest}/weight/c0-h0/600/0.json", 404, "queries 0 to 599"),
        ("/data/{digest}/edges/c0-h0.json", 422, "y0"),
        ("/data/{digest}/edges/c0-h0.json?y0=5&y1=5&x0=0&x1=9", 404, "queries 0 to 599"),
        ("/data/{digest}/search.json?text=", 422, "text"),
        ("/data/{digest}/search.json?text=a&T=1", 404, "1 texts"),
    ],
)
def test_what_is_not_there(running: Running, book: Made, path: str, status: int, says: str) -> None:
    answer = running.get(path.format(digest=book.digest))
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert list(answer.json()) == ["error"]
    assert says in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/data/{digest}/../../etc/passwd",
        "/data/{digest}/tiles/..%2f..%2fetc/0/0/0.bin",
        "/..%2f..%2fetc/passwd",
        "/map.js/../../app.py",
        "/assets/index.html",
        "//etc/passwd",
        "/data/%2e%2e/info.json",
        "/data/{digest}/text/0.json%00",
    ],
)
def test_no_path_leads_elsewhere(running: Running, book: Made, path: str) -> None:
    # As it stands, not as a client would tidy it.
    url = f"{running.url}{path.format(digest=book.digest)}"
    answer = running.client.send(running.client.build_request("GET", url))
    assert answer.status_code in (404, 422)
    assert list(answer.json()) == ["error"]


def test_other_methods_are_refused(running: Running, book: Made) -> None:
    answer = running.client.delete(f"/data/{book.digest}/info.json")
    assert answer.status_code == 405
    assert answer.json() == {"error": "Method Not Allowed"}


def test_nothing_is_loaded_from_elsewhere_to_read_the_description(running: Running) -> None:
    assert running.get("/docs").status_code == 404
    assert running.get("/redoc").status_code == 404
    description = running.get("/openapi.json").json()
    for path, methods in description["paths"].items():
        for method in methods.values():
            assert method["summary"], path
            assert method["description"], path
            assert {"404", "422", "503"} <= set(method["responses"]), path
            fault = method["responses"]["422"]["content"]["application/json"]["schema"]
            assert fault == {"$ref": "#/components/schemas/Fault"}, path


def test_the_cache_stays_within_its_bounds(book: Made) -> None:
    limit = 600_000
    with served(book.recording, cache_bytes=limit) as running:
        tiles = [
            f"/data/{book.digest}/tiles/c{call}-h{head}-mean/2/0/{y}.bin"
            for call in range(2)
            for head in range(3)
            for y in range(3)
        ]
        first = [running.get(path).content for path in tiles]
        assert sum(map(len, first)) > 3 * limit
        cache = running.service.cache
        assert 0 < cache.bytes <= limit
        computed = running.work.computed
        assert running.get(tiles[-1]).content == first[-1]
        assert running.work.computed == computed
        assert running.get(tiles[0]).content == first[0]
        assert running.work.computed == computed + 1
        assert cache.bytes <= limit
