"""What pages look like: contrasts, themes, and texts that stay in their place."""

from typing import Any

import pytest

import regard
from regard.views.explain import worked_example
from tests.views.page.looks import CONTRASTS, TEXT_FAULTS
from tests.views.page.pages import HOSTILE, PHONE, WORDS, Open, call_of, html_of, shown

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


class TestColours:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("direction", ["to", "from"])
    def test_contrast_is_enough(
        self, short: str, open_page: Open, scheme: str, direction: str
    ) -> None:
        page = open_page(short, f"#view=text&token=3&direction={direction}", color_scheme=scheme)
        page.locator(".words .token").first.evaluate(
            "token => { token.classList.add('lit'); token.style.setProperty('--weight', '1') }"
        )
        read = page.locator(".words .token.lit, .about, .small-print, .legend, .grid-label")
        assert min(read.evaluate_all(CONTRASTS)) >= 4.5

    def test_the_button_changes_the_theme(self, short: str, open_page: Open) -> None:
        page = open_page(short, color_scheme="dark")
        paper = "getComputedStyle(document.documentElement).backgroundColor"
        dark = page.evaluate(paper)
        page.locator(".theme").click()
        light = page.evaluate(paper)
        assert light != dark
        page.locator(".theme").click()
        assert page.evaluate(paper) == dark
        page.reload()
        page.wait_for_selector(".token")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def screen(width: int) -> dict[str, Any]:
    return PHONE if width == 360 else {"viewport": {"width": width, "height": 900}}


class TestLayout:
    @pytest.mark.parametrize("width", [360, 1440])
    @pytest.mark.parametrize("view", ["lines", "text", "heads"])
    def test_no_texts_overlap_or_overflow(
        self, short: str, cross: str, open_page: Open, width: int, view: str
    ) -> None:
        steps = html_of(WORDS[:4], layers=1, explanation=worked_example())
        part = regard.page(call_of(len(WORDS)).matrix[0, 1:, :4, 4:], WORDS).html
        one = html_of(["x"], layers=1)
        for html in (short, cross, html_of(HOSTILE, layers=2), steps, part, one):
            for state in ("token=3&direction=from", "layer=2&head=0&token=1&colour=entropy"):
                page = open_page(html, f"#view={view}&{state}", **screen(width))
                shown(page)
                assert page.evaluate(TEXT_FAULTS) == []
                page.context.close()

    @pytest.mark.parametrize("width", [600, 768, 1199, 2000])
    def test_widths_between_and_beyond(self, cross: str, open_page: Open, width: int) -> None:
        for view in ("lines", "text", "heads"):
            page = open_page(cross, f"#view={view}&layer=2&head=0&token=1", **screen(width))
            shown(page)
            assert page.evaluate(TEXT_FAULTS) == []

    def test_printing_shows_all_of_the_text(self, long: str, open_page: Open) -> None:
        page = open_page(long)
        page.emulate_media(media="print")
        shown(page)
        assert page.evaluate(
            "(box => box.scrollHeight <= box.clientHeight + 1)(document.querySelector('.scroller'))"
        )
        assert not page.locator(".switches").is_visible()


class TestFlow:
    TOPS = """() => [...document.querySelectorAll('.words .token')]
        .map(token => Math.round(token.getBoundingClientRect().top))"""
    GAPS = """() => [...document.querySelectorAll('.words .token')]
        .map(token => token.getBoundingClientRect())
        .map((box, at, all) => at % 3 ? box.left - all[at - 1].right : 0)"""

    def test_pieces_of_a_word_stay_together_on_a_phone(self, open_page: Open) -> None:
        tokens = [piece for _ in range(20) for piece in (" un", "believ", "able")]
        page = open_page(html_of(tokens, layers=1), "#view=text", **PHONE)
        shown(page)
        tops = page.evaluate(self.TOPS)
        assert len(set(tops)) > 2
        for word in range(20):
            assert len(set(tops[3 * word : 3 * word + 3])) == 1
        assert max(page.evaluate(self.GAPS)) < 1

    def test_lines_broken_at_a_width_go_on(self, open_page: Open) -> None:
        line = [" word"] * 13 + ["\n"]
        tokens = ["word", *line[1:]] * 6
        page = open_page(html_of(tokens, layers=1), "#view=text", **PHONE)
        shown(page)
        tops = page.evaluate(self.TOPS)
        # What follows a break stands on the same line, unless that is full.
        same = [tops[14 * row] == tops[14 * row - 1] for row in range(1, 6)]
        assert sum(same) >= 3
