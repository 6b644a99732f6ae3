"""The tile protocol of HiGlass, as its clients speak it."""

import base64
from typing import Any

import numpy as np
import pytest

from tests.server.made import Made
from tests.server.running import Running

pytestmark = pytest.mark.usefixtures("one_thread")


def dense(tile: dict[str, Any]) -> Any:
    assert tile["dtype"] == "float32"
    return np.frombuffer(base64.b64decode(tile["dense"]), "<f4")


def test_tilesets_are_listed(running: Running, book: Made, pair: Made) -> None:
    found = running.get("/api/v1/tilesets/", params={"limit": 1000}).json()
    # Of each call its heads and their mean, as a map and two lines, each by mean and max. And of
    # the book the mean of everything.
    heads = 2 * (3 + 1) + (2 + 1)
    assert found["count"] == len(found["results"]) == 2 * heads + 4 * heads + 2
    uids = {one["uuid"]: one for one in found["results"]}
    assert len(uids) == found["count"]
    assert all("." not in uid for uid in uids)
    assert uids[f"{book.digest}_c1-h2-max"]["name"] == "book 1.2 (max)"
    some = running.get("/api/v1/tilesets/", params={"limit": 2, "offset": 3}).json()
    assert some["results"] == found["results"][3:5]
    searched = running.get("/api/v1/tilesets/", params={"ac": "BOOK 1.2", "dt": "matrix"}).json()
    assert [one["uuid"] for one in searched["results"]] == [
        f"{book.digest}_c1-h2-mean",
        f"{book.digest}_c1-h2-max",
    ]
    lines = running.get("/api/v1/tilesets/", params={"ac": "BOOK 1.2", "dt": "vector"}).json()
    assert [one["uuid"] for one in lines["results"]] == [
        f"{book.digest}_c1-h2-{line}-{pool}"
        for line in ("received", "entropy")
        for pool in ("mean", "max")
    ]


def test_sizes(running: Running, book: Made, pair: Made) -> None:
    uids = [
        f"{book.digest}_c0-h1-mean",
        f"{book.digest}_all-max",
        f"{pair.digest}_c0-hmean-max",
        f"{pair.digest}_c0-h1-received-mean",
        f"{pair.digest}_c0-h1-entropy-mean",
    ]
    found = running.get("/api/v1/tileset_info/", params={"d": uids, "s": "session"}).json()
    assert list(found) == uids
    one, everything, other, received, entropy = found.values()
    assert (one["min_pos"], one["max_pos"]) == ([0, 0], [600, 600])
    assert (one["max_width"], one["max_zoom"]) == (1024, 2)
    assert (one["tile_size"], one["bins_per_dimension"], one["mirror_tiles"]) == (256, 256, "false")
    assert (everything["max_width"], everything["max_zoom"]) == (1024, 2)
    # x runs over keys, y over queries.
    assert (other["max_pos"], other["max_zoom"]) == ([40, 300], 1)
    assert (received["max_pos"], entropy["max_pos"]) == ([40], [300])


def test_tiles(running: Running, book: Made) -> None:
    matrix, line = f"{book.digest}_c0-h1-max", f"{book.digest}_c0-h1-entropy-mean"
    ids = [f"{matrix}.0.0.0", f"{matrix}.2.1.2", f"{line}.1.0"]
    found = running.get("/api/v1/tiles/", params={"d": ids, "s": "session"}).json()
    assert list(found) == ids
    same = [
        running.numbers(f"/data/{book.digest}/tiles/c0-h1-max/0/0/0.bin"),
        running.numbers(f"/data/{book.digest}/tiles/c0-h1-max/2/1/2.bin"),
        running.numbers(f"/data/{book.digest}/lines/c0-h1-entropy-mean/1/0.bin"),
    ]
    for name, values in zip(ids, same, strict=True):
        np.testing.assert_array_equal(dense(found[name]), values)
        assert found[name]["min_value"] == np.nanmin(values)
        assert found[name]["max_value"] == np.nanmax(values)


def test_a_tile_of_nothing_is_json(running: Running, book: Made) -> None:
    name = f"{book.digest}_c0-h1-max.2.2.0"
    tile = running.get("/api/v1/tiles/", params={"d": name}).json()[name]
    assert np.isnan(dense(tile)).all()
    assert (tile["min_value"], tile["max_value"]) == (0, 0)


def test_posted_tiles(running: Running, book: Made) -> None:
    uid = f"{book.digest}_c0-h1-max"
    body = [{"tilesetUid": uid, "tileIds": ["0.0.0", "1.0.1"], "options": {"any": 1}}]
    found = running.client.post("/api/v1/tiles/", json=body).json()
    asked = [f"{uid}.0.0.0", f"{uid}.1.0.1"]
    assert found == running.get("/api/v1/tiles/", params={"d": asked}).json()
    # Its client posts all tiles with each part of them, and names the part in the address.
    part = running.client.post("/api/v1/tiles/", json=body, params={"d": asked[1]}).json()
    assert list(part) == asked[1:]


def test_what_is_not_there(running: Running, book: Made) -> None:
    wrong = {
        "nobody": "no recording nobody",
        f"{book.digest}_c0-h0-median": "must be of a tileset",
        f"{book.digest}_c7-h0-mean": "2 calls",
        f"{book.digest}_c0-h7-mean": "head must be",
        f"{book.digest}": "must be of a tileset",
    }
    infos = running.get("/api/v1/tileset_info/", params={"d": list(wrong)})
    assert infos.status_code == 200
    tiles = running.get("/api/v1/tiles/", params={"d": [f"{uid}.0.0.0" for uid in wrong]})
    assert tiles.status_code == 200
    for uid, says in wrong.items():
        assert says in infos.json()[uid]["error"]
        assert says in tiles.json()[f"{uid}.0.0.0"]["error"]
    uid = f"{book.digest}_c0-h0-mean"
    for places in ("", ".0", ".0.0", ".a.0.0", ".0.0.0.0", ".-1.0.0", ".9.0.0", ".0.5.0", ".²"):
        found = running.get("/api/v1/tiles/", params={"d": uid + places}).json()
        assert list(found[uid + places]) == ["error"]


def test_too_many_tiles(running: Running, book: Made) -> None:
    ids = [f"{book.digest}_c0-h0-mean.2.0.{number}" for number in range(65)]
    assert running.get("/api/v1/tiles/", params={"d": ids}).status_code == 422
    assert running.get("/api/v1/tiles/").status_code == 422
    places = [f"2.0.{number}" for number in range(40)]
    uids = [f"{book.digest}_c0-h{head}-mean" for head in (0, 1)]
    body = [{"tilesetUid": uid, "tileIds": places} for uid in uids]
    found = running.client.post("/api/v1/tiles/", json=body).json()
    assert len(found) == 80
    refused = [name for name, tile in found.items() if "64 tiles" in tile.get("error", "")]
    assert refused == [f"{uids[1]}.2.0.{number}" for number in range(24, 40)]
