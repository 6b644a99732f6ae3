"""What the server says of a recording, held against a softmax in float64."""

import math

import numpy as np
import pytest

from regard.server.file_layout import FileInSteps
from regard.server.live_files import TokenLooksFile
from regard.server.tile_ids import POOLS
from tests.server.made import HOSTILE, Made, counted_looks, pooled, tile_of
from tests.server.running import Running

pytestmark = pytest.mark.usefixtures("one_thread")

ROUNDING = 16 * float(np.finfo(np.float32).eps)
"""What scores of a few units may be off by in float32."""

TWELVE_BITS = 2.0**-12
"""What a pooled number may be off by, as a part of itself: half of it for each rounding."""


def test_recordings(running: Running, book: Made, pair: Made) -> None:
    found = running.get("/recordings.json").json()
    assert found == {
        "version": 1,
        "live": True,
        "recordings": [
            {
                "name": "book",
                "digest": book.digest,
                "title": "<b>A book</b>",
                "model": "toy",
                "tokens": 600,
            },
            {
                "name": "pair",
                "digest": pair.digest,
                "title": "pair",
                "model": "toy",
                "tokens": 300,
            },
        ],
    }


def test_info(running: Running, book: Made) -> None:
    found = running.get(f"/data/{book.digest}/info.json").json()
    assert (found["version"], found["live"], found["published"]) == (1, True, None)
    assert (found["tileSize"], found["rowBlock"]) == (256, 16)
    assert found["texts"] == [{"name": "text", "tokens": 600}]
    assert [one["name"] for one in found["measures"]][:2] == ["entropy", "distance"]
    assert found["all"] == {"maxZoom": 2, "fullZoom": 2}
    assert set(found["about"]) == {"model", "date", "versions", "dtype", "error", "text_sha256"}
    first = found["calls"][0]
    # 600 tokens in tiles of 256: four tiles along an axis at the deepest level.
    assert (first["call"], first["layer"], first["maxZoom"], first["causal"]) == (0, "0", 2, True)
    assert (first["queries"], first["keys"], first["heads"]) == (600, 600, 3)
    itself = [np.nanmean(np.diagonal(head)) for head in book.weights[0]]
    assert first["measures"]["itself"] == pytest.approx(itself, rel=1e-3)


def test_info_of_two_texts(running: Running, pair: Made) -> None:
    found = running.get(f"/data/{pair.digest}/info.json").json()
    assert [text["tokens"] for text in found["texts"]] == [40, 300]
    (call,) = found["calls"]
    assert (call["queryText"], call["keyText"], call["causal"]) == (1, 0, False)
    assert (call["looks"], found["all"]) == ("cross", None)
    # A distance to another text has no meaning, and JSON no NaN.
    assert call["measures"]["distance"] == [None, None]


def test_texts(running: Running, book: Made, pair: Made) -> None:
    for made in (book, pair):
        for number, pieces in enumerate(made.pieces):
            found = running.get(f"/data/{made.digest}/text/{number}.json").json()["pieces"]
            assert len(found) == len(pieces)
            assert [piece.strip() for piece in found[:20]] == [one.strip() for one in pieces[:20]]


def test_hostile_tokens_are_only_text(running: Running, book: Made) -> None:
    answer = running.get(f"/data/{book.digest}/text/0.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    joined = "".join(answer.json()["pieces"])
    for token in HOSTILE[:2]:
        assert token.replace(" ", "") in joined.replace(" ", "")


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_tiles(running: Running, book: Made, level: int, pool: str) -> None:
    cell = 2 ** (2 - level)
    for call, weights in enumerate(book.weights):
        maps = {str(head): pooled(one, cell, pool) for head, one in enumerate(weights)}
        # The mean of a call is of the maps of its heads.
        maps["mean"] = np.mean(list(maps.values()), axis=0)
        for head, cells in maps.items():
            for y in range(-(-len(cells) // 256)):
                for x in range(y + 1):
                    found = running.tile(book.digest, f"c{call}-h{head}-{pool}", level, x, y)
                    expected = tile_of(cells, x, y)
                    relative = 0.0 if cell == 1 and head != "mean" else TWELVE_BITS
                    np.testing.assert_allclose(found, expected, rtol=relative, atol=ROUNDING)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_mean_of_all_heads(running: Running, book: Made, level: int, pool: str) -> None:
    cell = 2 ** (2 - level)
    cells = np.mean([pooled(one, cell, pool) for call in book.weights for one in call], axis=0)
    for y in range(2**level - (level == 2)):
        for x in range(y + 1):
            found = running.tile(book.digest, f"all-{pool}", level, x, y)
            relative = 0.0 if cell == 1 else 2 * TWELVE_BITS
            np.testing.assert_allclose(found, tile_of(cells, x, y), rtol=relative, atol=ROUNDING)


def test_tiles_of_a_matrix_that_is_not_square(running: Running, pair: Made) -> None:
    for level, y in ((0, 0), (1, 0), (1, 1)):
        cells = pooled(pair.weights[0][1], 2 ** (1 - level), "max")
        found = running.tile(pair.digest, "c0-h1-max", level, 0, y)
        expected = tile_of(cells, 0, y)
        np.testing.assert_allclose(found, expected, rtol=TWELVE_BITS, atol=ROUNDING)
    # Beside the 40 keys there is nothing.
    assert np.isnan(running.tile(pair.digest, "c0-h1-max", 1, 1, 0)).all()


def test_exact_tiles_are_the_weights_of_the_recording(running: Running, book: Made) -> None:
    found = running.tile(book.digest, "c1-h2-mean", 2, 0, 1)
    expected = book.recording.tile(1, 2, 2, 0, 1)
    np.testing.assert_array_equal(found, expected)


def test_lines(running: Running, book: Made) -> None:
    weights = book.weights[0][1]
    filled = np.nan_to_num(weights)
    logs = np.log(np.where(filled > 0, filled, 1.0))
    lines = {"received": np.nanmean(weights, axis=0), "entropy": -(filled * logs).sum(axis=1)}
    for name, values in lines.items():
        fine = np.concatenate(
            [
                running.numbers(f"/data/{book.digest}/lines/c0-h1-{name}-mean/2/{x}.bin")
                for x in (0, 1, 2)
            ]
        )
        np.testing.assert_allclose(fine[:600], values, rtol=1e-4, atol=ROUNDING)
        assert np.isnan(fine[600:]).all()
        for pool in POOLS:
            whole = running.numbers(f"/data/{book.digest}/lines/c0-h1-{name}-{pool}/0/0.bin")
            cells = values.reshape(150, 4)
            expected = cells.mean(axis=1) if pool == "mean" else cells.max(axis=1)
            np.testing.assert_allclose(whole[:150], expected, rtol=3e-4, atol=ROUNDING)


def test_thumbs(running: Running, book: Made, pair: Made) -> None:
    found = running.numbers(f"/data/{book.digest}/thumbs/1.bin").reshape(3, 32, 32)
    # 600 tokens in at most 32 cells of equally many: 19 in each.
    expected = np.nan_to_num(pooled(book.weights[1][2], 19, "mean"))
    np.testing.assert_allclose(np.nan_to_num(found[2]), expected, rtol=TWELVE_BITS, atol=ROUNDING)
    smaller = running.numbers(f"/data/{pair.digest}/thumbs/0.bin").reshape(2, 32, 32)
    # 40 keys in cells of two.
    assert np.isnan(smaller[:, :, 20:]).all()
    assert not np.isnan(smaller[:, :30, :20]).any()


@pytest.mark.parametrize("name", ["c0-h1", "c0-hmean", "all"])
def test_rows(running: Running, book: Made, name: str) -> None:
    weights = np.nan_to_num(book.weights[0])
    matrix = weights[1]
    if name == "c0-hmean":
        matrix = weights.mean(axis=0)
    elif name == "all":
        matrix = np.nan_to_num(book.weights).mean(axis=(0, 1))
    for block in (0, 5, 37):
        found = running.get(f"/data/{book.digest}/rows/{name}/{block}.json").json()
        assert found["first"] == 16 * block
        assert len(found["rows"]) == (16 if block < 37 else 8)
        for query, row in enumerate(found["rows"], start=16 * block):
            assert len(row["keys"]) == min(64, query + 1)
            assert max(row["keys"]) <= query
            assert row["weights"] == sorted(row["weights"], reverse=True)
            np.testing.assert_allclose(row["weights"], matrix[query, row["keys"]], atol=ROUNDING)
            strongest = np.sort(matrix[query])[::-1][:64]
            np.testing.assert_allclose(row["weights"], strongest[: query + 1], atol=ROUNDING)
            assert sum(row["weights"]) + row["rest"] == pytest.approx(1.0, abs=1e-5)


def test_columns(running: Running, book: Made) -> None:
    column = np.nan_to_num(book.weights[1][0][:, 50])
    found = running.get(f"/data/{book.digest}/columns/c1-h0/50.json").json()
    assert found["count"] == 600
    assert found["sum"] == pytest.approx(column.sum(), rel=1e-4)
    assert min(found["queries"]) >= 50
    np.testing.assert_allclose(found["weights"], column[found["queries"]], atol=ROUNDING)
    np.testing.assert_allclose(found["weights"], np.sort(column)[::-1][:64], atol=ROUNDING)


@pytest.mark.parametrize("direction", ["from", "at"])
@pytest.mark.parametrize("name", ["book", "pair"])
def test_the_strongest_look_of_each_head(
    running: Running, request: pytest.FixtureRequest, name: str, direction: str
) -> None:
    made: Made = request.getfixturevalue(name)
    text = 1 if name == "pair" and direction == "from" else 0
    # Early tokens look at the first, at neighbours and at what is no word; late ones at words.
    for token in (*range(40), len(made.pieces[text]) - 1):
        path = f"/data/{made.digest}/looks/{direction}/{text}/{token}.json"
        found = running.get(path).json()["calls"]
        assert [one["call"] for one in found] == list(range(len(made.weights)))
        for one in found:
            looks = counted_looks(made, one["call"], token, direction)
            np.testing.assert_allclose(one["weights"], looks.max(axis=-1), atol=ROUNDING)
            for row, other in zip(looks, one["tokens"], strict=True):
                assert other is None if row.max() == 0 else row[other] == row.max()


def test_looks_are_computed_head_by_head(book: Made) -> None:
    file = TokenLooksFile("at", 0, 5)
    assert isinstance(file, FileInSteps)
    assert len(list(file.steps(book.recording))) == 6


def test_looks_are_those_of_heads_that_have_the_text(running: Running, pair: Made) -> None:
    for path in ("from/0/7", "at/1/7"):
        found = running.get(f"/data/{pair.digest}/looks/{path}.json")
        assert found.json() == {"calls": []}


def test_one_weight(running: Running, book: Made) -> None:
    matrix = book.weights[0]
    found = running.get(f"/data/{book.digest}/weight/c0-h2/500/20.json").json()
    assert found["weight"] == pytest.approx(matrix[2, 500, 20], abs=ROUNDING)
    other = running.get(f"/data/{book.digest}/weight/c0-h2/500/21.json").json()
    # Scores of one row differ as the logarithms of their weights.
    apart = math.log(matrix[2, 500, 20]) - math.log(matrix[2, 500, 21])
    assert found["score"] - other["score"] == pytest.approx(apart, abs=1e-4)
    mean = running.get(f"/data/{book.digest}/weight/c0-hmean/500/20.json").json()
    assert mean["weight"] == pytest.approx(matrix[:, 500, 20].mean(), abs=ROUNDING)
    assert running.get(f"/data/{book.digest}/weight/c0-h2/20/500.json").json() == {
        "weight": 0.0,
        "score": None,
    }


def test_edges(running: Running, book: Made) -> None:
    path = f"/data/{book.digest}/edges/c0-h0.json"
    rectangle = {"y0": 100, "y1": 300, "x0": 50, "x1": 150, "count": 20}
    found = running.get(path, params=rectangle).json()
    part = np.nan_to_num(book.weights[0][0][100:300, 50:150])
    weights = [weight for *_, weight in found["edges"]]
    np.testing.assert_allclose(weights, np.sort(part.ravel())[::-1][:20], atol=ROUNDING)
    for query, key, weight in found["edges"]:
        assert weight == pytest.approx(part[query - 100, key - 50], abs=ROUNDING)
    assert found["rest"] == pytest.approx(part.sum() - sum(weights), rel=1e-4)


def test_search(running: Running, book: Made) -> None:
    path = f"/data/{book.digest}/search.json"
    found = running.get(path, params={"text": "WORD59"}).json()
    places = [
        number for number, piece in enumerate(book.pieces[0]) if piece.strip().startswith("word59")
    ]
    assert found == {"matches": [[place, place] for place in places], "more": False}
    some = running.get(path, params={"text": "word", "from": 100, "count": 3}).json()
    assert some == {"matches": [[100, 100], [101, 101], [102, 102]], "more": True}
