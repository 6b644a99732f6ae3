"""The first picture of the map: there before the engine is, where and as the engine draws it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.server.publish import publish
from tests.server.made import Made
from tests.server.viewing import View, Viewing, files_served

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

ENGINE = "**/engine.js*"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
FORBIDDEN = (0xF1, 0xF2, 0xEF)
"""The colour of what nobody may look at."""

TIES = 0.03
"""In so many pixels pictures may differ: where the middle of a pixel is just between two cells, a
graphics card may choose the other. If one is a pixel off, they differ nearly everywhere."""


def sketched(view: View) -> None:
    """Wait for a first picture without an engine."""
    view.until(lambda: view.marked("first-picture"), "there is a first picture")
    view.until(lambda: view.held, "the engine is asked for")
    assert view.page.evaluate("window.regardEngine === undefined")
    assert view.marked("ready") is None
    view.sketched()


def maps_of(view: View) -> list[NDArray[np.uint8]]:
    """Return what is on the screen of each map, with its axes and lines."""
    pixels = view.pixels()
    found: list[NDArray[np.uint8]] = []
    for card in view.page.locator(".card-body").all():
        box = card.bounding_box()
        left, top = round(box["x"]), round(box["y"])
        found.append(pixels[top : top + int(box["height"]), left : left + int(box["width"])])
    return found


@pytest.mark.parametrize(
    ("hash", "settings"),
    [
        ("", {}),
        ("", {"color_scheme": "dark"}),
        ("", PHONE),
        ("#heads=c1-h1&pool=mean&scale=linear&colours=viridis&x=100,420&y=130,400", {}),
        ("#heads=c0-h2,c1-h0&query=330", {"viewport": {"width": 1203, "height": 667}}),
    ],
    ids=["light", "dark", "phone", "a part", "two heads"],
)
def test_it_is_what_the_engine_draws(
    viewing: Viewing, url: str, hash: str, settings: dict[str, Any]
) -> None:
    view = viewing.open(url, hash, wait=False, hold=ENGINE, **settings)
    sketched(view)
    camera = view.ask("map.camera()")
    assert view.page.locator(".sketch").count() == view.page.locator(".card").count()
    before = maps_of(view)
    for each in before:
        assert len(np.unique(each.reshape(-1, 3), axis=0)) > 60

    view.release()
    view.until(lambda: view.marked("ready"), "the engine has drawn")
    view.settle()
    assert view.ask("map.camera()") == camera
    assert view.page.locator(".sketch").count() == 0
    assert view.page.locator(".engine canvas").count() == len(before)
    first, ready = view.marked("first-picture"), view.marked("ready")
    assert first is not None
    assert ready is not None
    assert first < ready
    # The texts have come since, which are not on the axes from so far away.
    for one, other in zip(before, maps_of(view), strict=True):
        assert one.shape == other.shape
        differs = (one != other).any(axis=-1)
        assert differs.mean() < TIES


def test_cells_have_their_colours(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url, "#heads=c0-h1", wait=False, hold=ENGINE)
    sketched(view)
    cells = [(key, query) for query in range(40, 600, 37) for key in range(5, 600, 29)]

    def colours() -> list[tuple[int, ...]]:
        pixels = view.pixels()
        places = [view.place(*cell) for cell in cells]
        return [tuple(int(value) for value in pixels[int(y), int(x)]) for x, y in places]

    before = colours()
    for (key, query), colour in zip(cells, before, strict=True):
        # Near the diagonal, a cell of several pairs has some that may look.
        if key > query + 4:
            assert colour == FORBIDDEN
        elif key < query:
            assert colour != FORBIDDEN
    assert len(set(before)) > 50
    view.release()
    view.settle()
    same = [one == other for one, other in zip(before, colours(), strict=True)]
    assert np.mean(same) > 0.97


def test_one_can_zoom_already(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, wait=False, hold=ENGINE)
    sketched(view)
    scale = view.ask("map.camera().scale")
    whole = maps_of(view)[0]
    view.page.mouse.move(*view.place(200, 400))
    view.page.mouse.wheel(0, -240)
    view.until(lambda: view.ask("map.camera().scale") > 1.5 * scale, "it is nearer")
    view.sketched()
    camera = view.ask("map.camera()")
    before = maps_of(view)[0]
    assert (before != whole).any(axis=-1).mean() > 0.2
    view.release()
    view.settle()
    assert view.ask("map.camera()") == camera
    # But for the lines through the pair that is pointed at.
    assert (before != maps_of(view)[0]).any(axis=-1).mean() < 0.05


def test_another_size_before_the_engine_is_there(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, wait=False, hold=ENGINE)
    sketched(view)
    view.page.set_viewport_size({"width": 1100, "height": 620})
    view.sketched()
    before = maps_of(view)[0]
    view.release()
    view.settle()
    assert (before != maps_of(view)[0]).any(axis=-1).mean() < TIES


def test_an_engine_that_does_not_come(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, wait=False, hold=ENGINE)
    sketched(view)
    before = maps_of(view)[0]
    while view.held:
        view.held.pop().abort()
    alert = view.page.wait_for_selector("[role=alert]:visible")
    assert "engine.js" in alert.inner_text()
    # What can be seen without it stays.
    assert view.page.locator(".sketch").count() == 1
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 60
    view.page.unroute(ENGINE)
    view.page.click("[role=alert] button")
    view.settle()
    assert view.page.locator("[role=alert]:visible").count() == 0
    viewing.expected.append("ERR_FAILED")


def test_a_tile_that_is_damaged(viewing: Viewing, url: str) -> None:
    tiles, damaged = "**/tiles/**/0/*.bin", "**/tiles/**/0/1.bin"

    def refuse(route: Any) -> None:
        body = json.dumps({"error": "the recording is damaged: a chunk"})
        route.fulfill(status=500, content_type="application/json", body=body)

    view = viewing.open(url, wait=False, hold=tiles)
    view.until(lambda: len(view.held) == 3, "three tiles are asked for")
    view.page.route(damaged, refuse)
    for route in list(view.held):
        if route.request.url.endswith("/0/1.bin"):
            view.held.remove(route)
            refuse(route)
    alert = view.page.locator("[role=alert]")
    view.until(alert.is_visible, "it is said what is wrong")
    assert "the recording is damaged: a chunk" in alert.inner_text()
    # The rest is shown all the same, by the engine; that it comes does not end the trouble.
    seen: list[bool] = []

    def shown() -> bool:
        view.release()
        seen.append(alert.is_visible())
        return view.marked("ready") is not None

    view.until(shown, "the engine has taken over")
    assert all(seen)
    assert view.page.locator(".sketch").count() == 0
    assert view.ask("map.valueAt(500, 550)") is not None
    # It is asked for again and again: once it comes, all is well.
    view.page.unroute_all()
    view.until(lambda: not alert.is_visible(), "nothing is wrong any more")
    view.settle()
    viewing.expected.append("500")


def test_a_published_folder_has_it_too(viewing: Viewing, book: Made, tmp_path: Path) -> None:
    folder = publish(book.recording, tmp_path / "site", heads=["0.1"], depth=1, progress=False)
    with files_served(folder) as url:
        view = viewing.open(url, wait=False, hold=ENGINE)
        sketched(view)
        before = maps_of(view)[0]
        view.release()
        view.settle()
        assert (before != maps_of(view)[0]).any(axis=-1).mean() < TIES
