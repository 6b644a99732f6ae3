"""Pages are used with a pointer, a finger and keys, and are found again by their address."""

import re

import pytest

from tests.browsing import until
from tests.views.page.pages import PHONE, Open, head, shown, token

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


class TestPointer:
    def test_hover_previews_and_leaving_goes_back(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        before = shown(page)
        token(page, 4).hover()
        assert shown(page).startswith("the looks most at")
        token(page, 1, "keys").hover()
        assert shown(page).startswith("animal is looked at most by")
        page.mouse.move(5, 5)
        assert shown(page) == before

    def test_click_pins_and_escape_lets_go(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        token(page, 1).click()
        token(page, 6).hover()
        assert shown(page).startswith("animal looks")
        page.keyboard.press("Escape")
        page.mouse.move(5, 5)
        assert shown(page).startswith("Choose a token")
        assert page.locator(".words .lit, .column.keys .lit").count() > 0
        assert page.locator(".curves.all .faint path").count() > 0

    def test_a_second_click_lets_go(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        token(page, 1).click()
        assert token(page, 1).get_attribute("aria-selected") == "true"
        token(page, 1).click()
        page.mouse.move(5, 5)
        assert shown(page).startswith("Choose a token")

    def test_a_row_of_the_table_goes_to_its_token(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        row = page.locator(".key-table tbody tr").first
        name = row.locator("bdi").inner_text()
        row.click()
        assert shown(page).startswith(f"{name} looks")

    def test_the_map_chooses_a_query(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        cells = page.locator(".map-cells")
        box = cells.bounding_box()
        cells.click(position={"x": box["width"] / 2, "y": box["height"] * 10.5 / 11})
        assert shown(page).startswith("tired looks")
        assert page.locator(".crosshair rect").count() == 1

    def test_the_name_of_a_head_is_beside_the_pointer(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        page.get_by_label("Show").select_option("entropy")
        page.locator("[data-block='2'][data-section='1']").hover()
        words = page.locator(".tooltip").inner_text()
        assert re.fullmatch(r"Layer 2, head 1 · entropy \d\.\d\d nats", words)
        assert page.locator(".panel:not(.map) .legend .bar").is_visible()


class TestFinger:
    def test_tap_pins(self, short: str, open_page: Open) -> None:
        page = open_page(short, **PHONE)
        token(page, 3).tap()
        assert shown(page).startswith("cross looks")
        assert page.locator(".token.pinned").count() == 1
        page.get_by_role("button", name="Unpin").tap()
        assert shown(page).startswith("Choose a token")

    def test_heads_can_be_tapped(self, short: str, open_page: Open) -> None:
        page = open_page(short, **PHONE)
        page.locator("[data-block='3'][data-section='2']").tap()
        assert head(page) == "Layer 3, head 2"

    def test_targets_are_as_large_as_a_fingertip(self, short: str, open_page: Open) -> None:
        for view in ("lines", "text"):
            page = open_page(short, f"#view={view}", **PHONE)
            sizes = page.evaluate(
                """() => [...document.querySelectorAll(
                  'button, select, .switch label, .grid-cell, .row, .words .token')]
                  .filter(each => each.offsetParent)
                  .map(each => [each.className, each.offsetWidth, each.offsetHeight])
                  .filter(([, width, height]) => width < 24 || height < 24)"""
            )
            assert sizes == []


class TestKeys:
    def test_every_key(self, short: str, open_page: Open) -> None:
        page = open_page(short, "#layer=1&head=1&token=2")
        press = page.keyboard.press
        press("ArrowRight")
        assert shown(page).startswith("cross looks")
        press("ArrowLeft")
        press("ArrowLeft")
        assert shown(page).startswith("animal looks")
        press("ArrowDown")
        assert head(page) == "Layer 2, head 1"
        press("ArrowUp")
        press("]")
        assert head(page) == "Layer 1, head 2"
        press("Shift+ArrowLeft")
        press("[")
        assert head(page) == "Layer 1, head 0"
        press("m")
        assert head(page) == "Layer 1, mean of 3 heads"
        press("m")
        assert head(page) == "Layer 1, head 0"
        press("r")
        assert shown(page).startswith("animal is looked at most by")
        press("t")
        shown(page)
        assert page.locator(".words").is_visible()
        press("?")
        assert page.get_by_role("dialog").is_visible()
        press("Escape")
        assert shown(page).startswith("animal is looked at")
        press("Escape")
        assert shown(page).startswith("Choose a token")

    def test_the_last_row_is_the_mean_over_everything(self, short: str, open_page: Open) -> None:
        page = open_page(short, "#layer=3&head=0")
        page.keyboard.press("ArrowDown")
        assert head(page) == "All 4 layers, mean of heads"

    def test_grid_and_text_are_reached_by_tab(self, short: str, open_page: Open) -> None:
        page = open_page(short, "#layer=0&head=0&token=0")
        page.locator("h1").click()
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate(
                    "document.activeElement.closest('.grid-cell, .token, input, button')?.className"
                )
            )
        assert "grid-cell" in reached
        assert any("token" in (each or "") for each in reached)
        page.locator(".grid-cell[tabindex='0']").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        assert head(page) == "Layer 0, head 0"
        page.keyboard.press("Enter")
        assert head(page) == "Layer 1, head 1"
        page.locator(".column.queries .token[tabindex='0']").focus()
        page.keyboard.press("ArrowRight")
        shown(page)
        assert page.evaluate("document.activeElement.textContent") == "animal"


class TestDirection:
    def test_the_switch_turns_it(self, short: str, open_page: Open) -> None:
        page = open_page(short, "#view=text&layer=0&head=0&token=4")
        assert shown(page).startswith("the looks most at")
        page.get_by_label("Who looks at it").check()
        assert shown(page).startswith("the is looked at most by")
        assert page.locator(".key-table caption").inner_text() == "Who looks at the"


class TestAddress:
    def test_is_restored(self, short: str, open_page: Open) -> None:
        page = open_page(short, "#layer=2&head=1&token=7&view=text&direction=from&colour=distance")
        assert head(page) == "Layer 2, head 1"
        assert shown(page).startswith("it is looked at")
        assert page.locator(".words").is_visible()
        assert page.get_by_label("Show").input_value() == "distance"

    def test_follows_what_is_looked_at(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        page.locator("[data-block='1'][data-section='2']").click()
        token(page, 6).click()
        until(page, "location.hash.includes('token=6')")
        again = open_page(short, page.evaluate("location.hash"))
        assert (head(again), shown(again)) == (head(page), shown(page))

    @pytest.mark.parametrize("hash", ["#layer=99&head=x&token=-1", "#token=99999", "#%%%", "#=&=&"])
    def test_that_makes_no_sense_does_no_harm(self, short: str, open_page: Open, hash: str) -> None:
        assert head(open_page(short, hash)).startswith("Layer")
