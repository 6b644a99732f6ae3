"""Getting about in the map: with a wheel, a finger, keys, a search and links."""

import re
from typing import Any

import pytest

from tests.server.made import Made
from tests.server.viewing import DEEP, Viewing, shown

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def test_a_wheel_zooms_about_the_pointer(viewing: Viewing, url: str) -> None:
    view = viewing.open(url)
    before = view.place(200, 400)
    scale = view.ask("map.camera().scale")
    view.page.mouse.move(*before)
    for _ in range(4):
        view.page.mouse.wheel(0, -240)
    view.settle()
    assert view.ask("map.camera().scale") > 3 * scale
    # The wheel is where whole pixels are, and what it is off by has grown eightfold.
    assert view.place(200, 400) == pytest.approx(before, abs=8)
    view.page.mouse.wheel(0, 60_000)
    view.settle()
    # One can't get farther away than to see it all.
    assert view.ask("map.camera().scale") == pytest.approx(scale)


def test_dragging_moves_the_map_and_not_out_of_it(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, f"#{DEEP}")
    (before, _), (above, _) = view.domain()
    scale = view.ask("map.camera().scale")
    x, y = view.place(320, 330)
    view.page.mouse.move(x, y)
    view.page.mouse.down()
    view.page.mouse.move(x - 60, y - 30, steps=3)
    view.page.mouse.up()
    view.settle()
    (after, _), (below, _) = view.domain()
    assert (after - before) * scale == pytest.approx(60, abs=1)
    assert (below - above) * scale == pytest.approx(30, abs=1)
    assert view.ask("map.look().query") is None
    for _ in range(12):
        view.page.mouse.move(x, y)
        view.page.mouse.down()
        view.page.mouse.move(x + 500, y + 400, steps=2)
        view.page.mouse.up()
    view.settle()
    (left, right), (top, bottom) = view.domain()
    assert -0.02 * (right - left) <= left <= 0
    assert -0.02 * (bottom - top) <= top <= 0


def test_keys_do_everything(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, "#heads=c0-h1")

    def after(key: str, question: str) -> Any:
        view.page.keyboard.press(key)
        view.settle()
        return view.ask(question)

    whole = view.ask("map.camera().scale")
    assert after("+", "map.camera().scale") == pytest.approx(1.5 * whole)
    assert after("-", "map.camera().scale") == pytest.approx(whole)
    assert after("d", "map.camera().scale") >= 11
    middle = view.ask("map.camera().x")
    assert after("ArrowRight", "map.camera().x") > middle
    assert after("ArrowLeft", "map.camera().x") == pytest.approx(middle)
    assert after("ArrowDown", "map.camera().y") > view.ask("map.domain().y[0]")
    assert after("0", "map.camera().scale") == pytest.approx(whole)
    assert after("]", "map.look().heads") == [{"call": 0, "head": 2}]
    assert after("[", "map.look().heads") == [{"call": 0, "head": 1}]
    assert after("}", "map.look().heads") == [{"call": 1, "head": 1}]
    assert after("{", "map.look().heads") == [{"call": 0, "head": 1}]
    assert after("m", "map.look().pool") == "mean"
    assert after("l", "map.look().scaling") == "linear"
    assert after("t", "document.documentElement.dataset.theme") == "light"
    assert after("t", "document.documentElement.dataset.theme") == "dark"
    assert after("/", "document.activeElement.type") == "search"
    view.page.keyboard.press("Escape")
    assert after("e", "document.querySelector('.menu').open")
    view.page.keyboard.press("Escape")
    assert after("?", "document.querySelector('dialog').open")


def test_fingers_drag_pinch_and_choose(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, "#heads=c0-h0", **PHONE)
    driver = view.page.context.new_cdp_session(view.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        driver.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    x, y = view.place(250, 400)
    scale = view.ask("map.camera().scale")
    touch("touchStart", (x - 20, y), (x + 20, y))
    for spread in range(20, 81, 10):
        touch("touchMove", (x - spread, y), (x + spread, y))
    touch("touchEnd")
    view.settle()
    assert view.ask("map.camera().scale") == pytest.approx(4 * scale, rel=0.1)
    assert view.place(250, 400) == pytest.approx((x, y), abs=8)
    left = view.domain()[0][0]
    touch("touchStart", (x, y))
    for step in range(0, 41, 8):
        touch("touchMove", (x - step, y))
    touch("touchEnd")
    view.settle()
    assert view.domain()[0][0] > left
    assert view.ask("map.look().query") is None
    view.page.touchscreen.tap(*view.place(270, 380))
    view.settle()
    assert abs(view.ask("map.look().query") - 380) <= 1


def test_on_a_phone_a_choice_uncovers_the_map(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, "#heads=c0-h0", **PHONE)
    for head, beside in (("c1-h2", False), ("c1-h0", True)):
        view.page.tap(".show-heads")
        view.page.wait_for_selector(".heads", state="visible")
        if beside:
            view.page.tap(".heads .add")
        view.page.tap(f"[data-head={head}]")
        view.page.wait_for_selector(".heads", state="hidden")
        view.settle()
    assert view.ask("map.look().heads") == [{"call": 1, "head": 2}, {"call": 1, "head": 0}]
    # On a desk, where they are beside the map, they stay.
    desk = viewing.open(url, "#heads=c0-h0")
    desk.page.click("[data-head=c1-h2]")
    desk.settle()
    assert desk.page.is_visible(".heads")


def test_searching_goes_to_rows_and_marks_them(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url)
    view.page.keyboard.press("/")
    view.page.keyboard.type("WORD30")
    view.settle()
    words = [number for number, piece in enumerate(book.pieces[0]) if "word30" in piece]
    assert view.page.inner_text(".found") == f"1 of {len(words)}"
    for step, token in ((0, words[0]), (1, words[1]), (-1, words[0])):
        if step:
            view.page.keyboard.press("Enter" if step > 0 else "ArrowUp")
            view.settle()
        assert view.ask("map.match()") == [token, token]
        x, y = view.domain()
        assert x[0] < token < x[1]
        assert y[0] < token < y[1]
        assert shown(book.pieces[0][token]) in view.texts()["queries"]
        assert view.page.inner_text(".token.match.here") == shown(book.pieces[0][token])


def test_two_heads_move_together(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url, f"#heads=c0-h0&{DEEP}")
    view.page.click("[data-head=c1-h2]", modifiers=["Shift"])
    view.until(lambda: view.page.locator(".card").count() == 2, "there are two maps")
    view.settle()
    x, y = view.place(310, 320, 1)
    view.page.mouse.move(x, y)
    view.page.mouse.wheel(0, -200)
    view.settle()
    assert view.texts(0) == view.texts(1)
    view.page.mouse.move(*view.place(311, 322, 1))
    view.until(lambda: "1.2" in view.readout(), "the value of the second head is read out")
    assert view.page.locator(".cross:visible").count() == 4
    weights = [book.weights[call][head][322, 311] for call, head in ((0, 0), (1, 2))]
    figures = [float(value) for value in re.findall(r"\d\.\d{4}", view.readout())]
    small = [
        float(value.replace("−", "-")) for value in re.findall(r"\d\.\d+e−\d+", view.readout())
    ]
    for weight in weights:
        assert any(abs(weight - value) < 1e-4 for value in [*figures, *small])
    view.page.click(".card >> nth=1 >> .close")
    view.until(lambda: view.page.locator(".card").count() == 1, "one map is closed")
    assert view.ask("map.look().heads") == [{"call": 0, "head": 0}]


def test_a_link_restores_the_view(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, f"#heads=c0-h2,c1-h0&{DEEP}&colours=viridis&pool=mean&scale=linear")
    view.page.mouse.click(*view.place(312, 325))
    view.settle()
    hash = view.until(
        lambda: (found := view.page.evaluate("location.hash")) and "query=325" in found and found,
        "the address has the row",
    )
    again = viewing.open(url, hash)
    looks = [each.ask("map.look()") for each in (again, view)]
    domains = [look.pop("domain") for look in looks]
    assert looks[0] == looks[1]
    for axis in ("x", "y"):
        assert domains[0][axis] == pytest.approx(domains[1][axis], abs=0.002)
    for name in ("x", "y", "scale"):
        camera = [each.ask(f"map.camera().{name}") for each in (again, view)]
        assert camera[0] == pytest.approx(camera[1], abs=0.002)
    # And so does an address that changes.
    again.page.evaluate("location.hash = '#heads=c1-h1&pool=max'")
    again.until(lambda: again.ask("map.look().pool") == "max", "the new address is shown")
    again.settle()
    assert again.ask("map.look().heads") == [{"call": 1, "head": 1}]
    assert again.ask("map.look().domain") is None


def test_another_recording_is_chosen(viewing: Viewing, url: str, book: Made, pair: Made) -> None:
    view = viewing.open(url)
    view.page.select_option(".recordings", pair.digest)
    view.until(
        lambda: view.ask(f"map?.look().recording === '{pair.digest}' && map.complete()"),
        "the other recording is shown",
    )
    assert view.page.inner_text(".titles .about") == "toy · 40 + 300 tokens"


def test_panels_can_be_put_away(viewing: Viewing, url: str, book: Made) -> None:
    view = viewing.open(url, f"#{DEEP}")
    # The text is where the map is.
    view.page.wait_for_selector(f".token:has-text('{shown(book.pieces[0][330])}')")
    view.page.keyboard.press("0")
    view.settle()
    scale = view.ask("map.camera().scale")
    for panel in ("text", "heads"):
        view.page.click(f".show-{panel}")
    view.until(lambda: view.ask("map.domain().x[1]") > 700, "the map is wider")
    view.settle()
    # It has more room, and is still seen whole.
    assert view.ask("map.camera().scale") >= scale
    assert view.ask("map.look().domain") is None
    view.page.set_viewport_size({"width": 1000, "height": 560})
    view.until(lambda: view.ask("map.camera().scale") < 0.8 * scale, "the map is smaller")
    view.settle()
    assert view.place(599, 599)[1] < 560
