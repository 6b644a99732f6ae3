"""What the map shows: pictures, words, values, hostile texts, and what goes wrong."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import regard
from regard.server.assets import assets
from regard.server.publish import publish
from tests.server.made import HOSTILE, Made, counted_looks, pooled
from tests.server.running import served
from tests.server.viewing import DEEP, Viewing, files_served, shown

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def test_the_first_picture(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url)
    assert view.page.title() == "<b>A book</b> · Regard"
    assert view.page.inner_text(".titles .about") == "toy · 600 tokens"
    x, y = view.domain()
    assert x[0] <= 0
    assert y[0] <= 0
    assert x[1] >= 600
    assert y[1] >= 600
    pixels = view.pixels()

    def colour(key: int, query: int) -> tuple[int, ...]:
        left, top = view.place(key, query)
        return tuple(int(value) for value in pixels[round(top), round(left)])

    # Above the diagonal nobody may look; below it, there are many weights.
    assert colour(500, 100) == colour(400, 50) == (0xF1, 0xF2, 0xEF)
    assert len({colour(key, 590) for key in range(0, 580, 5)}) > 30
    # Before the picture, only what it needs was asked for.
    first = [re.sub(r".*/data/\w+/", "", path) for path in viewing.asked]
    text = first.index("text/0.json")
    assert not any(path.startswith(("thumbs", "rows")) for path in first[:text])


def test_dark(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, color_scheme="dark")
    assert view.pixels()[2, 2].max() < 40
    left, top = view.place(500, 100)
    assert view.pixels()[round(top), round(left)].max() < 60
    view.page.keyboard.press("t")
    view.settle()
    assert view.pixels()[2, 2].min() > 200


def test_tokens_are_read_on_both_axes(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url, f"#{DEEP}")
    x, y = view.domain()
    for axis, (first, last) in (("keys", x), ("queries", y)):
        tokens = range(max(0, int(np.floor(first))), min(600, int(np.ceil(last))))
        assert view.texts()[axis] == [shown(book.pieces[0][token]) for token in tokens]
        assert len(tokens) >= 30


def test_values_are_those_of_the_matrix(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url, f"#heads=c1-h1&{DEEP}")
    weights = book.weights[1][1]
    for key, query in ((300, 330), (311, 312), (320, 345), (326, 326)):
        found = view.ask(f"map.valueAt({key}, {query})")
        assert found["tokens"] == 1
        assert found["value"] == pytest.approx(weights[query, key], rel=1e-5, abs=1e-9)
        view.page.mouse.move(*view.place(key, query))
        weight = weights[query, key]
        words = f"{weight:.4f}" if weight >= 0.001 else f"{weight:.2e}".split("e")[0]
        view.until(lambda words=words: words in view.readout(), f"{words} is read out")
        for token in (key, query):
            assert f"{token:,}" in view.readout()
            assert shown(book.pieces[0][token]) in view.readout()
    view.page.mouse.move(*view.place(335, 320))
    view.until(lambda: "may not look" in view.readout(), "that it may not look is read out")
    view.page.keyboard.press("0")
    for pool in ("max", "mean"):
        view.settle()
        tokens = view.ask("map.valueAt(40, 500).tokens")
        assert tokens > 1 or view.ask("map.camera().scale") > 0.75
        cells = pooled(weights, tokens, pool)
        found = view.ask("map.valueAt(40, 500).value")
        assert found == pytest.approx(cells[500 // tokens, 40 // tokens], rel=1e-3)
        view.page.keyboard.press("m")


def test_a_row_lights_its_keys(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url, "#heads=c1-h0")
    view.page.click(".scroller .token >> nth=0")
    view.settle()
    assert view.ask("map.look().query") == 0
    view.page.keyboard.press("Escape")
    view.page.evaluate(f"location.hash = '#heads=c1-h0&{DEEP}'")
    view.until(lambda: view.ask("map.look().domain !== null"), "one is there")
    view.settle()
    view.page.mouse.click(*view.place(305, 340))
    view.page.wait_for_selector(".keys button")
    row = np.nan_to_num(book.weights[1][0][340])
    order = np.argsort(-row)[:10]
    listed = [
        int(item.get_attribute("data-key")) for item in view.page.query_selector_all(".keys button")
    ]
    assert listed[:10] == order.tolist()
    assert shown(book.pieces[0][340]) in view.page.inner_text(".sentence")
    assert f"{row[order[0]]:.4f}" in view.page.inner_text(".sentence")
    lit = view.page.query_selector_all(".token.lit")
    numbers = {int(token.get_attribute("data-token")) for token in lit}
    assert numbers
    assert numbers <= set(np.argsort(-row)[:64].tolist())
    view.page.click(f".keys button[data-key='{order[2]}']")
    view.settle()
    x, _ = view.domain()
    assert x[0] < order[2] < x[1]


def test_the_mean_of_all_heads_is_read_as_a_head_is(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url, f"#heads=all&{DEEP}")
    weights = np.mean(book.weights, axis=(0, 1))
    for key, query in ((300, 330), (311, 312), (326, 326)):
        found = view.ask(f"map.valueAt({key}, {query})")
        assert found["tokens"] == 1
        assert found["value"] == pytest.approx(weights[query, key], rel=1e-5)
    view.page.mouse.click(*view.place(305, 340))
    view.page.wait_for_selector(".keys button")
    row = np.nan_to_num(weights[340])
    order = np.argsort(-row)[:10]
    listed = view.page.query_selector_all(".keys button")
    assert [int(item.get_attribute("data-key")) for item in listed[:10]] == order.tolist()
    sentence = view.page.inner_text(".sentence")
    assert f"in the mean of all heads: {row[order[0]]:.4f}" in sentence


@pytest.mark.parametrize(("direction", "on_page"), [("from", "to"), ("at", "from")])
def test_heads_are_sorted_by_the_chosen_token_as_on_a_page(
    viewing: Viewing, url: str, book: Made, tmp_path: Path, direction: str, on_page: str
) -> None:
    view = viewing.open(url, "#heads=c1-h0")
    view.page.select_option("#sorted-by", f"looks-{direction}")
    assert view.page.inner_text(".heads .small-print").startswith("Choose a token")
    view.page.click(".scroller .token >> nth=15")
    view.page.wait_for_selector(".ranked-head")
    about = view.page.inner_text(".heads .small-print")
    assert about.startswith(f"Strongest looks {direction} {shown(book.pieces[0][15])};")
    looks = np.stack([counted_looks(book, call, 15, direction) for call in (0, 1)])
    largest = looks.max(axis=-1)
    order = [divmod(int(head), 3) for head in np.argsort(-largest.ravel())]
    words = [shown(book.pieces[0][looks[head].argmax()]) for head in order]
    names = [f"{layer}.{head}" for layer, head in order]
    figures = [f"{largest[head]:.4f}" for head in order]
    for name, expected in (("name", names), ("look", words), ("value", figures)):
        assert view.page.locator(f".ranked-{name}").all_text_contents() == expected
    view.page.locator(".ranked-head").nth(2).click()
    assert view.ask("`${map.look().heads[0].call}.${map.look().heads[0].head}`") == names[2]

    regard.page(book.recording, book.pieces[0]).save(tmp_path / "page.html")
    state = f"#layer=0&head=0&token=15&direction={on_page}&colour=token"
    page = viewing.open(tmp_path.as_uri(), f"page.html{state}", wait=False).page
    page.wait_for_selector(".ranking li")
    first = [one.rsplit(" ", 1)[0] for one in page.locator(".ranking li").all_inner_texts()]
    titles = [f"Layer {layer}, head {head}" for layer, head in order]
    both = [f"{title} {word}" for title, word in zip(titles, words, strict=True)]
    assert first == both[:5]


def test_looks_that_come_late_are_not_shown_for_another_token(
    viewing: Viewing, url: str, book: Made
) -> None:
    view = viewing.open(url, "#heads=c1-h0&query=15", hold="**/looks/from/0/15.json")
    view.page.select_option("#sorted-by", "looks-from")
    view.until(lambda: view.held, "looks are asked for")
    assert view.page.inner_text(".heads .small-print").endswith("…")
    assert view.page.locator(".ranked-head").count() == 0
    view.page.click(".scroller .token >> nth=16")
    view.page.wait_for_selector(".ranked-head")
    view.release()
    view.settle()
    largest = max(counted_looks(book, call, 16, "from").max() for call in (0, 1))
    assert view.page.text_content(".ranked-value >> nth=0") == f"{largest:.4f}"
    view.page.keyboard.press("Escape")
    assert view.page.inner_text(".heads .small-print").startswith("Choose a token")
    assert view.page.locator(".thumb-row").count() == 2


def test_pictures_are_saved(viewing: Viewing, url: str, tmp_path: Path, book: Made) -> None:
    view = viewing.open(
        url, "#heads=c0-h1,c1-h1&x=322,338&y=322,338&query=330", accept_downloads=True
    )

    def saved(kind: str) -> Path:
        view.page.keyboard.press("e")
        with view.page.expect_download() as download:
            view.page.click(f"[data-format={kind}]")
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    svg = saved("svg")
    assert svg.name == "book-0.1-1.1.svg"
    root = ElementTree.parse(svg).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"<b>A book</b>", "Layer 0, head 1", "Layer 1, head 1"} <= words
    assert shown(book.pieces[0][330]) in words
    images = list(root.iter("{http://www.w3.org/2000/svg}image"))
    assert images
    assert all(image.get("href", "").startswith("data:image/png") for image in images)
    picture = Image.open(saved("png"))
    assert picture.size == tuple(
        2 * round(float(root.get(side, 0))) for side in ("width", "height")
    )
    colours = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(colours, axis=0)) > 100


def test_a_picture_ends_where_the_matrix_does(viewing: Viewing, url: str, tmp_path: Path) -> None:
    view = viewing.open(url, "#heads=c0-h1", accept_downloads=True)
    for panel in ("text", "heads"):
        view.page.click(f".show-{panel}")
    view.until(lambda: view.ask("map.domain().x[1]") > 700, "there is room beside the matrix")
    view.settle()
    view.page.keyboard.press("e")
    with view.page.expect_download() as download:
        view.page.click("[data-format=svg]")
    download.value.save_as(tmp_path / "picture.svg")
    root = ElementTree.parse(tmp_path / "picture.svg").getroot()
    side = 600 * view.ask("map.camera().scale")
    assert side < float(root.get("width", 0)) < side + 200
    assert side < float(root.get("height", 0)) < side + 300


# Of four, those below and to the right have no axes of their own.
@pytest.mark.parametrize(
    ("heads", "axes"),
    [
        ("c0-h0,c1-h2", [(1, 1), (1, 1)]),
        ("c0-h0,c1-h2,c0-h1,c1-h1", [(1, 1), (1, 0), (0, 1), (0, 0)]),
    ],
    ids=["two", "four"],
)
def test_maps_beside_each_other_fill_the_stage(
    viewing: Viewing, url: str, heads: str, axes: list[tuple[int, int]]
) -> None:
    view = viewing.open(url, f"#heads={heads}&query=330")
    stage = view.page.locator(".stage").bounding_box()
    # A sheet is as large as the matrix, and within its window if all of it is seen.
    areas: list[float] = []
    for window in view.page.locator(".map-window").all():
        outside = window.bounding_box()
        inside = window.locator(".sheet").bounding_box()
        for start, size in (("x", "width"), ("y", "height")):
            assert inside[start] >= outside[start]
            assert inside[start] + inside[size] <= outside[start] + outside[size]
        assert inside["width"] == pytest.approx(inside["height"])
        areas.append(inside["width"] * inside["height"])
    assert len(areas) == len(axes)
    assert sum(areas) >= 0.6 * stage["width"] * stage["height"]
    view.page.evaluate(f"location.hash = '#heads={heads}&{DEEP}'")
    view.until(lambda: view.ask("map.look().domain !== null"), "one is there")
    view.settle()
    first = view.texts()
    for number, (keys, queries) in enumerate(axes):
        shown = {
            "keys": first["keys"] if keys else [],
            "queries": first["queries"] if queries else [],
        }
        assert view.texts(number) == shown


def test_hostile_tokens_are_words_like_any_other(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, "#heads=c0-h0&x=15,35&y=15,35&query=22")
    words = view.texts()["queries"]
    assert "‹RLO›gnirts desrever"[:6] in " ".join(words)
    assert any(word.startswith("<img src") for word in words)
    assert any(word.startswith("xxxx") and word.endswith("…") for word in words)
    assert "↵" in words
    view.page.mouse.move(*view.place(20, 26))
    view.until(lambda: HOSTILE[0] in view.readout(), "the token is read out")
    assert HOSTILE[0] in view.page.inner_text(".text-sheet")
    assert (
        view.page.locator("#regard img, #regard script, #regard b:has-text('A book')").count() == 0
    )
    assert view.page.inner_text(".recordings option:checked") == "<b>A book</b>"


def test_a_text_that_looks_at_another(viewing: Viewing, url: str, pair: Made) -> None:
    view = viewing.open(url, f"#recording={pair.digest}&heads=c0-h1")
    assert view.page.locator(".scroller:visible").count() == 2
    value = view.ask("map.valueAt(30, 200)")
    cells = pooled(pair.weights[0][1], value["tokens"], "max")
    expected = cells[200 // value["tokens"], 30 // value["tokens"]]
    assert value["value"] == pytest.approx(expected, rel=1e-3)
    view.page.keyboard.press("/")
    view.page.keyboard.type("t250")
    view.settle()
    _, y = view.domain()
    assert y[0] < 250 < y[1]
    assert "t250" in view.texts()["queries"]


@pytest.mark.parametrize("size", [(900, 640), (390, 844), (1440, 900)])
def test_everything_fits(viewing: Viewing, url: str, size: tuple[int, int]) -> None:
    width, height = size
    view = viewing.open(url, "#query=100", viewport={"width": width, "height": height})
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert view.page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    for selector in (".top-bar", ".glass", ".map-legend"):
        box = view.page.locator(selector).first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height
    glass = view.page.locator(".glass").bounding_box()
    assert glass["height"] > 0.4 * height
    hint = view.page.locator(".readout-token").first
    assert hint.evaluate("hint => hint.scrollWidth <= hint.clientWidth")
    view.page.mouse.move(*view.place(100, 400))
    view.until(lambda: "query" in view.readout(), "the pair is read out")
    # Both tokens can be read, whatever is around them; and the map is as large as it was.
    for token in view.page.locator(".readout-token").all():
        box, inside = token.bounding_box(), token.locator(".quoted").bounding_box()
        assert inside["x"] + inside["width"] <= box["x"] + box["width"]
    if width > 820:
        assert view.page.locator(".glass").bounding_box() == glass


def test_a_published_folder_needs_no_server(viewing: Viewing, book: Made, tmp_path: Path) -> None:
    heads = ["0.1", "mean"]
    folder = publish(book.recording, tmp_path / "site", heads=heads, depth=1, progress=False)
    with files_served(folder) as url:
        view = viewing.open(url)
        assert view.ask("map.look().heads") == [{"call": 0, "head": 1}]
        assert view.page.locator(".thumb:disabled").count() > 0
        assert view.page.is_visible("[data-head=all]")
        view.page.mouse.click(*view.place(100, 400))
        view.page.wait_for_selector(".keys button")
        view.page.mouse.move(*view.place(100, 400))
        view.page.keyboard.press("d")
        view.settle()
        # Deeper than what was published, cells stay those of the last level.
        assert view.ask("map.valueAt(100, 400).tokens") == 2
        assert shown(book.pieces[0][400]) in view.texts()["queries"]
        assert view.page.locator("[role=alert]:visible").count() == 0
        # It has measures of all heads, but of each token only the keys.
        options = view.page.locator("#sorted-by option").all_inner_texts()
        assert "entropy" in options
        assert "looks from" not in options


def test_a_server_that_dies_is_told_of(viewing: Viewing, book: Made) -> None:
    with served(book.recording, static=assets()) as running:
        view = viewing.open(running.url)
    view.page.keyboard.press("]")
    alert = view.page.wait_for_selector("[role=alert]:visible")
    assert "regard map" in alert.inner_text()
    assert view.page.locator(".card").count() == 1
    viewing.expected.append("ERR_CONNECTION")


def test_what_could_be_read_after_all_is_no_longer_complained_of(
    viewing: Viewing, url: str
) -> None:
    view = viewing.open(url, "#heads=c1-h0", wait=False, hold="**/text/0.json")
    view.until(lambda: view.held, "the text is asked for")
    view.held.pop().abort()
    view.page.wait_for_selector("[role=alert]:visible")
    view.until(lambda: view.held, "the text is asked for again")
    view.release()
    view.until(lambda: view.ask("map.hasText()"), "there is a text")
    view.page.wait_for_selector("[role=alert]", state="hidden")

    damaged = {"status": 500, "json": {"error": "these rows are damaged"}}
    view.page.route("**/rows/c1-h0/0.json", lambda route: route.fulfill(**damaged))
    view.page.click(".scroller .token >> nth=0")
    alert = view.page.wait_for_selector("[role=alert]:visible")
    assert "these rows are damaged" in alert.inner_text()
    # Another row, of another block.
    view.page.click(".scroller .token[data-token='17']")
    view.page.wait_for_selector(".keys button")
    view.page.wait_for_selector("[role=alert]", state="hidden")
    viewing.expected += ["ERR_FAILED", "500 (Internal Server Error)"]


def test_nothing_there_is_said(viewing: Viewing, browser: Any) -> None:
    with served(static=assets()) as running:
        view = viewing.open(running.url, wait=False)
        words = view.page.wait_for_selector("[role=alert]").inner_text()
    assert "no recording" in words
