"""The report as people meet it: in a browser, with a pointer, a finger and keys."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from regard.atlas.report import report
from tests.atlas.surveyed import (
    ABOUT,
    HOSTILE,
    PRINTED,
    as_arrow,
    example_row,
    hard_to_round,
    head_row,
    rows,
    tables,
)
from tests.browsing import findings_on_screens, opening, until
from tests.views.page.conftest import browser as browser
from tests.views.page.looks import CONTRASTS, TEXT_FAULTS

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
PHONE = {"viewport": {"width": 360, "height": 780}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def open_report(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a report in the browser, without a network; at the end, see that it missed nothing."""
    with opening(browser, tmp_path, ".card h2, [role=alert]") as open_html:
        yield open_html


@pytest.fixture(scope="module")
def small() -> str:
    return report(tables(), ABOUT)


def of_size(layers: int, heads: int) -> str:
    """A report of as many heads, some with labels, all with hostile examples."""
    made = [
        head_row(layer, head, labels=["sink"] if head % 3 else [], evidence=["e"] * (head % 3 > 0))
        for layer in range(layers)
        for head in range(heads)
    ]
    examples = [
        example_row(layer, 0, text, text[2:9], text[10:14])
        for layer in range(layers)
        for text in HOSTILE
    ]
    some = {"heads": made, "examples": examples}
    return report({name: pyarrow.Table.from_pylist(each) for name, each in some.items()}, ABOUT)


def chosen(page: Any) -> str:
    return page.locator(".card h2").inner_text()


def cell(page: Any, number: int) -> Any:
    return page.locator(f".atlas-cell[data-head='{number}']")


class TestHeads:
    def test_the_most_telling_is_there_at_first(self, small: str, open_report: Open) -> None:
        assert chosen(open_report(small)) == "Layer 1, head 2"

    def test_a_click_opens_the_card(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        cell(page, 1).click()
        assert chosen(page) == "Layer 0, head 1"
        assert "previous 0.740 ≥ 0.4" in page.locator(".card-labels").inner_text()
        line = page.locator(".measures tr", has_text="previous token")
        assert line.locator("td").all_inner_texts() == ["0.740", "", "1 of 6"]
        assert page.locator(".chart").count() == 2
        assert page.locator(".chart .bar").count() == 33

    def test_ranks_are_those_of_the_table(self, small: str, open_report: Open) -> None:
        entropies = [row["entropy"] for row in rows()["heads"]]
        page = open_report(small)
        for number, entropy in enumerate(entropies):
            cell(page, number).click()
            rank = 1 + sum(other > entropy for other in entropies)
            words = page.locator(".measures tbody tr").first.locator(".rank").inner_text()
            assert words == f"{rank} of 6"

    def test_what_was_not_measured_is_framed_and_said(self, small: str, open_report: Open) -> None:
        page = open_report(small, "#measure=next&head=0.2")
        assert page.locator(".atlas-cell.unknown").count() == 1
        assert "Not measured in 1 of the heads" in page.locator(".legend").inner_text()
        row = page.locator(".measures tr", has_text="next token")
        assert row.locator("td").first.inner_text() == "—"

    def test_colours_follow_the_measure(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        page.get_by_label("Colour by").select_option("first")
        colours = [
            cell(page, number).evaluate("cell => cell.style.backgroundColor") for number in range(6)
        ]
        assert colours[0] != colours[2]
        assert colours[1] == colours[3]
        assert "0.900" in page.locator(".scale").inner_text()

    def test_a_label_lets_its_heads_stand_out(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        chip = page.locator(".chip", has_text="positional")
        chip.click()
        assert page.locator(".atlas-cell:not(.faded)").all_inner_texts() == ["±", "±"]
        chip.click()
        assert page.locator(".atlas-cell.faded").count() == 0

    def test_beside_the_pointer_is_its_name(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        cell(page, 1).hover()
        words = page.locator(".tooltip").inner_text()
        assert words == "Layer 0, head 1 · entropy 1.50 nats · previous-token"

    def test_a_number_is_the_same_wherever_it_is(self, open_report: Open) -> None:
        page = open_report(report(as_arrow(rows(hard_to_round)), ABOUT), "#measure=previous")

        def labelled(label: str) -> str:
            return page.locator(".label-row", has_text=label).locator(".head-button").inner_text()

        cell(page, 1).click()
        previous = PRINTED["previous"]
        assert f"previous {previous} ≥ 0.4" in page.locator(".card-labels").inner_text()
        line = page.locator(".measures tr", has_text="previous token")
        assert line.locator("td").first.inner_text() == previous
        assert labelled("previous-token") == f"0.1 {previous}"
        cell(page, 1).hover()
        assert f"previous token {previous} " in page.locator(".tooltip").inner_text()
        cell(page, 2).click()
        offset = PRINTED["offset"]
        assert f"offset −2 {offset} ≥ 0.3" in page.locator(".card-labels").inner_text()
        titles = page.locator(".chart .bar title").all_text_contents()
        assert f"−2: {offset}" in titles
        cell(page, 4).click()
        score, (low, high) = PRINTED["score"], PRINTED["ends"]
        evidence = f"{score} ({low} to {high}) of 400, against 0.38"
        assert evidence in page.locator(".card-labels").inner_text()
        for place in (".tasks", ".task-table tr:has-text('obj →')"):
            words = " ".join(page.locator(place).inner_text().split())
            assert f"{score} {low}–{high} " in words
            assert "0.38 word at −2" in words


class TestTables:
    def test_lead_to_the_card(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        row = page.locator(".task-table tbody tr", has_text="obj → governor")
        assert "0.80 0.75–0.85" in row.inner_text().replace("\n", " ")
        row.get_by_role("button").click()
        assert chosen(page) == "Layer 1, head 1"
        assert page.locator(".card h2").evaluate("title => title.getBoundingClientRect().top") >= 0
        assert "best of all heads" in page.locator(".tasks").inner_text()

    def test_bars_are_as_long_as_scores(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        bar = page.locator(".task-table tr", has_text="obj →").locator(".score-bar")
        widths = bar.evaluate(
            """bar => ['.score-fill', '.score-base', '.score-interval']
              .map(name => bar.querySelector(name).getBoundingClientRect())
              .map(box => [box.left, box.right].map(edge =>
                (edge - bar.getBoundingClientRect().left) / bar.clientWidth))"""
        )
        (_, fill), base, interval = widths
        assert fill == pytest.approx(0.8, abs=0.005)
        assert sum(base) / 2 == pytest.approx(0.4, abs=0.005)
        assert interval == pytest.approx([0.75, 0.85], abs=0.005)

    def test_the_order_can_be_changed(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        page.get_by_label("Order by").select_option("name")
        names = page.locator(".task-table tbody th b").all_inner_texts()
        assert names == ["coreference", "obj → governor"]


class TestKeys:
    def test_the_grid_is_walked(self, small: str, open_report: Open) -> None:
        page = open_report(small, "#head=0.0")
        page.locator(".atlas-cell[tabindex='0']").focus()
        for key, head in (
            ("ArrowRight", "Layer 0, head 1"),
            ("ArrowDown", "Layer 1, head 1"),
            ("End", "Layer 1, head 2"),
            ("Home", "Layer 1, head 0"),
            ("ArrowUp", "Layer 0, head 0"),
            ("ArrowLeft", "Layer 0, head 0"),
        ):
            page.keyboard.press(key)
            assert chosen(page) == head

    def test_from_anywhere(self, small: str, open_report: Open) -> None:
        page = open_report(small, "#head=0.0&label=sink")
        page.keyboard.press("]")
        assert chosen(page) == "Layer 0, head 1"
        page.keyboard.press("[")
        page.keyboard.press("[")
        assert chosen(page) == "Layer 1, head 2"
        page.keyboard.press("m")
        assert page.get_by_label("Colour by").input_value() == "effective_keys"
        page.keyboard.press("Shift+M")
        assert page.get_by_label("Colour by").input_value() == "entropy"
        page.keyboard.press("Escape")
        assert page.locator(".atlas-cell.faded").count() == 0
        page.keyboard.press("?")
        assert page.get_by_role("dialog").is_visible()


class TestAddress:
    def test_follows_and_is_restored(self, small: str, open_report: Open) -> None:
        page = open_report(small)
        cell(page, 1).click()
        page.get_by_label("Colour by").select_option("previous")
        page.locator(".chip", has_text="sink").click()
        address = "#measure=previous&head=0.1&label=sink"
        until(page, f"location.hash === '{address}'")
        again = open_report(small, address)
        assert chosen(again) == "Layer 0, head 1"
        assert again.get_by_label("Colour by").input_value() == "previous"
        assert again.locator(".atlas-cell.faded").count() == 5

    @pytest.mark.parametrize("hash", ["#head=9.9&measure=x&label=y", "#%%%", "#=&="])
    def test_that_makes_no_sense_does_no_harm(
        self, small: str, open_report: Open, hash: str
    ) -> None:
        assert chosen(open_report(small, hash)).startswith("Layer")


class TestTexts:
    def test_are_only_text(self, small: str, open_report: Open) -> None:
        page = open_report(small, "#head=0.1")
        page.get_by_role("button", name="1 more").click()
        assert page.locator(".examples li").count() == 1 + len(HOSTILE)
        assert page.locator("#regard img, #regard script").count() == 0
        assert page.locator("h1").inner_text() == ABOUT["model"]
        marks = page.locator(".examples li").first.locator("mark")
        assert marks.all_inner_texts() == ["animal", "tired"]
        assert "alert(1)" in page.locator(".examples").inner_text()

    def test_damage_is_said(self, small: str, open_report: Open) -> None:
        page = open_report(small.replace('{"version":1', '{"version":1,,', 1))
        assert "the file is damaged" in page.get_by_role("alert").inner_text()


class TestLayout:
    @pytest.mark.parametrize("size", [(2, 3), (6, 12), (30, 9), (48, 25)])
    @pytest.mark.parametrize("width", [360, 800, 1280, 1920])
    def test_no_texts_overlap_or_overflow(
        self, small: str, open_report: Open, size: tuple[int, int], width: int
    ) -> None:
        html = small if size == (2, 3) else of_size(*size)
        screen = PHONE if width == 360 else {"viewport": {"width": width, "height": 900}}
        page = open_report(html, "#head=0.1" if size == (2, 3) else "#head=1.0", **screen)
        page.evaluate("document.fonts.ready")
        assert page.evaluate(TEXT_FAULTS) == []

    @pytest.mark.parametrize("size", [(6, 12), (30, 9), (48, 25)])
    def test_on_a_desk_all_columns_are_seen(self, open_report: Open, size: tuple[int, int]) -> None:
        page = open_report(of_size(*size))
        grid = "document.querySelector('.grid')"
        assert page.evaluate(f"{grid}.scrollWidth <= {grid}.clientWidth")
        assert page.locator(".atlas-cell").count() == size[0] * size[1]

    def test_a_finger_can_hit_all(self, open_report: Open) -> None:
        page = open_report(of_size(30, 9), **PHONE)
        small = page.evaluate(
            """() => [...document.querySelectorAll('button, select, .atlas-cell')]
              .filter(each => each.offsetParent)
              .map(each => [each.className, each.offsetWidth, each.offsetHeight])
              .filter(([, width, height]) => width < 24 || height < 24)"""
        )
        assert small == []

    def test_a_tap_leads_to_the_card_and_back(self, open_report: Open) -> None:
        page = open_report(of_size(30, 9), **PHONE)
        cell(page, 4).tap()
        assert chosen(page) == "Layer 0, head 4"
        top = "element => element.getBoundingClientRect().top"
        assert 0 <= page.locator(".card h2").evaluate(top) < 200
        page.get_by_role("button", name="All heads").tap()
        assert 0 <= page.locator(".grid").evaluate(top) < 300

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_marks_can_be_read(self, open_report: Open, scheme: str) -> None:
        page = open_report(of_size(6, 12), color_scheme=scheme)
        contrasts = page.locator(".atlas-cell").evaluate_all(CONTRASTS)
        assert min(contrasts) >= 4.5

    def test_axe_core_finds_nothing(self, small: str, open_report: Open) -> None:
        for html in (small, of_size(6, 12)):
            assert findings_on_screens(open_report(html)) == []
