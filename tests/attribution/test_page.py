"""The page of an attribution, in a browser: each number in it is that of Python."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.attribution import Attribution, HiddenPassages, attribute
from regard.attribution.ranking import passage_rows
from tests.attribution.models import decoder, tokenizer
from tests.browsing import findings_on_screens, opening, until
from tests.views.page.conftest import browser as browser
from tests.views.page.looks import CONTRASTS, TEXT_FAULTS

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LINES = ["The sea was calm .", "Harriet bought a violin .", "Oliver bought a kite ."]
PROMPT = "\n".join([*LINES, "what did Harriet buy ?"])
ANSWER = "Harriet bought a violin"
AT_ITS_MIDDLE = """element => {
  const box = element.getBoundingClientRect();
  const found = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return element.contains(found);
}"""
"""Whether an element is what is seen where it lies."""


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a page in the browser, without a network; at the end, see that it missed nothing."""
    with opening(browser, tmp_path, ".passage-card h2:not(:empty), [role=alert]") as open_html:
        yield open_html


@pytest.fixture(scope="module")
def found() -> Attribution:
    return attribute(decoder(), tokenizer(), PROMPT, ANSWER, "lines", each_token=True)


@pytest.fixture(scope="module")
def checked(found: Attribution) -> HiddenPassages:
    return found.verify(1)


@pytest.fixture(scope="module")
def html(found: Attribution, checked: HiddenPassages) -> str:
    return found.page(about="a small model", checked=checked).html


def written(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def ranking(page: Any) -> list[tuple[int, str]]:
    """The passages in the order of the list, with their scores."""
    rows = page.locator(".ranking-row")
    numbers = [int(row.get_attribute("data-passage")) for row in rows.all()]
    return list(zip(numbers, rows.locator(".score").all_inner_texts(), strict=True))


def expected_ranking(scores: Any, known: Any = None) -> list[tuple[int, str]]:
    known = scores if known is None else known
    order = known.argsort(descending=True, stable=True).tolist()
    return [(number, written(scores[number].item())) for number in order]


def best_known(found: Attribution, checked: HiddenPassages) -> torch.Tensor:
    return torch.tensor([row.best_known for row in passage_rows(found.scores, checked)])


def name_of(passage: int) -> str:
    """How the page names a passage: all of these are short."""
    return f"“{PROMPT.splitlines()[passage]}”"


class TestNumbers:
    def test_scores_are_those_of_python(
        self, html: str, found: Attribution, checked: HiddenPassages, open_page: Open
    ) -> None:
        page = open_page(html)
        known = best_known(found, checked)
        assert ranking(page) == expected_ranking(found.scores, known)
        hidden = page.locator(".ranking-row:has(.exact)")
        assert {
            int(row.get_attribute("data-passage")): row.locator(".exact").inner_text()
            for row in hidden.all()
        } == {
            number: f"hidden: {written(exact.item())}"
            for number, exact in zip(checked.passages, checked.exact, strict=True)
        }
        assert f"{found.log_prob:.2f}".replace("-", "−") in page.locator(".log-prob").inner_text()
        texts = page.locator(".prompt .passage").all_inner_texts()
        assert texts == [passage.text for passage in found.passages]
        assert page.locator(".prompt").inner_text() == PROMPT

    def test_words_have_their_own(
        self, html: str, found: Attribution, checked: HiddenPassages, open_page: Open
    ) -> None:
        page = open_page(html)
        assert found.by_token is not None
        words = page.locator(".word")
        assert words.all_inner_texts() == ANSWER.split()
        for number, scores in enumerate(found.by_token):
            words.nth(number).hover()
            assert ranking(page) == expected_ranking(scores)
            most = found.by_token.abs().max().item()
            assert f"{written(most)} supports “{ANSWER.split()[number]}”" in (
                page.locator(".prompt-panel .legend").inner_text().replace("\n", " ")
            )
        page.locator("h1").hover()
        known = best_known(found, checked)
        assert ranking(page) == expected_ranking(found.scores, known)
        words.nth(2).click()
        page.locator("h1").hover()
        assert ranking(page) == expected_ranking(found.by_token[2])
        page.keyboard.press("Escape")
        assert ranking(page) == expected_ranking(found.scores, known)

    def test_a_disagreement_is_marked(self, found: Attribution, open_page: Open) -> None:
        scores = torch.tensor([0.3, -3.5, 0.5, 0.1])
        checked = HiddenPassages([0, 2], scores[[0, 2]], torch.tensor([-1.4, 0.6]), "effects")
        page = open_page(replace(found, scores=scores).page(checked=checked).html)
        assert [number for number, _ in ranking(page)] == [2, 3, 0, 1]
        (marked,) = page.locator(".ranking-row:has(.disagrees)").all()
        assert marked.get_attribute("data-passage") == "0"
        assert marked.locator(".disagrees").inner_text() == "opposite sign"
        assert marked.locator(".score").inner_text() == "+0.300"
        marked.click()
        facts = page.locator(".passage-card .facts").inner_text()
        assert "rank 3 of 4" in facts
        assert "measured and predicted disagree: opposite sign" in facts
        # Its text is shaded by what was measured.
        opposing, supporting = (
            page.locator(f".passage[data-passage='{number}']").evaluate(
                "one => getComputedStyle(one).backgroundColor"
            )
            for number in (0, 2)
        )
        red, blue = (int(part) for part in re.findall(r"\d+", opposing)[::2])
        assert red > blue
        red, blue = (int(part) for part in re.findall(r"\d+", supporting)[::2])
        assert blue > red

    def test_heads_and_their_rows(self, html: str, found: Attribution, open_page: Open) -> None:
        assert found.by_head is not None
        assert found.looks is not None
        page = open_page(html)
        tokens = [*PROMPT.split(), *ANSWER.split()]
        for passage, looks in enumerate(found.looks):
            page.locator(f".passage[data-passage='{passage}']").click()
            assert page.locator(".passage-card h2").inner_text() == name_of(passage)
            labels = page.locator(".atlas-cell").evaluate_all(
                "cells => cells.map(cell => cell.getAttribute('aria-label'))"
            )
            assert labels == [
                f"Layer {layer}, head {head} · "
                f"{written(found.by_head[layer, head, passage].item())}"
                for layer in range(3)
                for head in range(4)
            ]
            assert page.locator(".atlas-cell", has_text="·").count() == len(looks) == 8
            for one in looks:
                page.locator(f".atlas-cell[data-head='{4 * one.layer + one.head}']").click()
                keys = page.locator(".key")
                span = found.passages[passage].tokens
                assert keys.all_inner_texts() == tokens[span.start : span.stop]
                assert keys.evaluate_all("keys => keys.map(key => key.title)") == [
                    written(value) for value in one.by_key.tolist()
                ]
                queries = page.locator(".queries li")
                assert queries.locator(".score").all_inner_texts() == [
                    written(value) for value in one.by_query.tolist()
                ]
                looking = [text.strip("↵") for text in queries.locator("b").all_inner_texts()]
                assert looking == [tokens[query] for query in one.queries]


class TestOtherWays:
    @pytest.mark.parametrize("how", ["attention", "leave-one-out"])
    def test_what_is_not_known_is_said(self, how: Any, open_page: Open) -> None:
        result = attribute(decoder(), tokenizer(), PROMPT, ANSWER, "lines", how=how)
        page = open_page(result.page().html)
        if how == "attention":
            assert [score for _, score in ranking(page)] == [
                f"{score:.3f}" for score in sorted(result.scores.tolist(), reverse=True)
            ]
            assert "by effects only" in page.locator(".looks").inner_text()
            assert "each_token=True" in page.locator(".answer-panel").inner_text()
            assert page.locator(".word").count() == 0
        else:
            assert ranking(page) == expected_ranking(result.scores)
            assert page.locator(".atlas-cell").count() == 0
            assert "says nothing of heads" in page.locator(".passage-card").inner_text()

    def test_texts_are_only_text(self, found: Attribution, open_page: Open) -> None:
        words = ["<script>alert(1)</script>", "</script>", "<img src=x onerror=alert(1)>"]
        model, split = decoder(), tokenizer()
        prompt = "\n".join([*words, "\u202eabc", "שלום 👩‍👩‍👧 \x00"])
        result = attribute(model, split, prompt, ANSWER, "lines", each_token=True)
        page = open_page(result.page(title="</title><b>", about="<b>").html)
        assert page.locator("#regard img, #regard script, #regard b b").count() == 0
        assert words[0] in page.locator(".prompt").inner_text()
        assert page.evaluate(TEXT_FAULTS) == []

    def test_damage_is_said(self, html: str, open_page: Open) -> None:
        page = open_page(html.replace('{"version":2', '{"version":2,,', 1))
        assert "the file is damaged" in page.get_by_role("alert").inner_text()


class TestUse:
    def test_by_keys_alone(
        self, html: str, found: Attribution, checked: HiddenPassages, open_page: Open
    ) -> None:
        order = best_known(found, checked).argsort(descending=True).tolist()
        page = open_page(html)
        title = page.locator(".passage-card h2")
        assert title.inner_text() == name_of(order[0])
        page.keyboard.press("]")
        assert title.inner_text() == name_of(order[1])
        page.locator(".passage[tabindex='0']").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert title.inner_text() == name_of(1)
        page.locator(".word[tabindex='0']").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(".word[aria-pressed='true']").inner_text() == "bought"
        page.locator(".atlas-cell[tabindex='0']").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert "head 1" in page.locator(".looks h3").inner_text()
        page.keyboard.press("?")
        assert page.get_by_role("dialog").is_visible()

    def test_the_address_follows_and_is_restored(self, html: str, open_page: Open) -> None:
        page = open_page(html, "#passage=2&head=1.3&word=1")
        assert page.locator(".passage-card h2").inner_text() == name_of(2)
        assert page.locator(".looks h3").inner_text().startswith("Layer 1, head 3")
        assert page.locator(".word[aria-pressed='true']").inner_text() == "bought"
        page.locator(".passage[data-passage='1']").click()
        until(page, "location.hash === '#passage=1&word=1'")

    def test_a_tap_leads_to_the_card_and_back(self, html: str, open_page: Open) -> None:
        page = open_page(html, **PHONE)
        page.locator(".passage[data-passage='2']").tap()
        top = "element => element.getBoundingClientRect().top"
        assert 0 <= page.locator(".passage-card h2").evaluate(top) < 800
        page.get_by_role("button", name="Prompt").tap()
        assert 0 <= page.locator(".prompt-panel h2").evaluate(top) < 800

    @pytest.mark.parametrize("width", [390, 800, 1440])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_all_can_be_read(self, html: str, open_page: Open, width: int, scheme: str) -> None:
        screen = PHONE if width == 390 else {"viewport": {"width": width, "height": 900}}
        page = open_page(html, "#word=3", color_scheme=scheme, **screen)
        assert page.evaluate(TEXT_FAULTS) == []
        shaded = page.locator(".passage, .word, .key, .queries .score, .atlas-cell")
        assert min(shaded.evaluate_all(CONTRASTS)) >= 4.5

    def test_passages_are_in_sight_beside_a_long_answer(self, open_page: Open) -> None:
        answer = " ".join([ANSWER] * 40)
        result = attribute(decoder(), tokenizer(), PROMPT, answer, "lines", each_token=True)
        page = open_page(result.page().html, viewport={"width": 1440, "height": 700})
        assert page.locator(".ranking-row").first.evaluate(AT_ITS_MIDDLE)

    def test_axe_core_finds_nothing(self, html: str, open_page: Open) -> None:
        assert findings_on_screens(open_page(html, "#passage=2&head=1.3&word=1")) == []
