"""What pages show of weights and texts: two of them, hostile, long or damaged ones."""

import re
from typing import Any

import pytest
import torch

import regard
from regard.calls import AttentionCall
from regard.calls.texts import TextLayer, TextPart
from regard.views.explain import worked_example
from regard.views.page.page import Shown, composed
from regard.views.page.strongest import contents_of
from tests.browsing import until
from tests.views.page.pages import (
    HOSTILE,
    WORDS,
    Open,
    call_of,
    calls_of,
    head,
    html_of,
    shown,
    token,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

IN_SIGHT = """() => { const token = document.querySelector('.token.chosen');
  const box = token.getBoundingClientRect();
  const around = token.closest('.scroller').getBoundingClientRect();
  return box.top >= around.top - 1 && box.bottom <= around.bottom + 1 }"""


def table(page: Any) -> list[list[str]]:
    """Return rank, token with what is around it, position and weight of each row."""
    return page.locator(".key-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    )


class TestWeights:
    def test_the_table_has_the_weights_of_the_model(self, open_page: Open) -> None:
        call = call_of(len(WORDS))
        page = open_page(regard.page(call, WORDS).html, "#layer=0&head=2&token=7")
        weights = call.matrix.dense()[0, 2, 7]
        rows = table(page)
        assert [int(row[0]) for row in rows] == list(range(1, 12))
        assert [int(row[2]) for row in rows] == weights.argsort(descending=True).tolist()
        for row in rows:
            assert float(row[3].removeprefix("<")) == pytest.approx(
                weights[int(row[2])].item(), abs=1e-3
            )
        figures = page.locator(".column.keys .figure").all_inner_texts()
        assert float(figures[int(rows[0][2])]) == pytest.approx(weights.max().item(), abs=1e-3)

    def test_what_is_missing_is_said(self, open_page: Open) -> None:
        call = call_of(len(WORDS))
        page = open_page(regard.page(call, WORDS, keep=2).html, "#layer=0&head=0&token=3")
        missing = 1 - call.matrix.dense()[0, 0, 3].topk(2).values.sum().item()
        foot = page.locator(".key-table tfoot").inner_text()
        assert int(re.findall(r"(\d+) %", foot)[0]) == pytest.approx(100 * missing, abs=0.6)
        assert "the 2 strongest keys of each token" in page.locator(".small-print").inner_text()

    def test_a_part_has_the_tokens_positions_and_heads_of_the_whole(self, open_page: Open) -> None:
        matrix = call_of(len(WORDS)).matrix
        made = regard.page(matrix[0, 1:, :4, 4:], WORDS, title="A part")
        page = open_page(made.html, "#layer=0&head=1&token=2")
        assert head(page) == "Attention, head 2"
        weights = matrix[0, 2, 2].tolist()
        rows = table(page)
        assert sorted(int(row[2]) for row in rows) == list(range(4, 11))
        for row in rows:
            assert WORDS[int(row[2])] in row[1]
            assert float(row[3].removeprefix("<")) == pytest.approx(weights[int(row[2])], abs=1e-3)
        names = page.locator(".column-name").all_inner_texts()
        assert names == ["text 0–3 looks", "text 4–10 is looked at"]
        foot = page.locator(".key-table tfoot").inner_text()
        missing = 1 - sum(weights[4:])
        assert "not on these tokens" in foot
        assert int(re.findall(r"(\d+) %", foot)[0]) == pytest.approx(100 * missing, abs=0.6)
        page.locator("[data-block='0'][data-section='2']").click()
        assert head(page) == "Attention, mean of 2 heads"

    def test_what_is_not_zero_is_not_shown_as_zero(self, open_page: Open) -> None:
        weights = torch.tensor([[1.0, 3e-9, 0.0], [0.0, 0.9996, 0.0004], [0.0, 0.0, 1.0]])
        matrix = regard.AttentionMatrix.from_weights(weights[None, None])
        page = open_page(regard.page(matrix, ["a", "b", "c"]).html, "#layer=0&head=0&token=0")
        assert [row[3] for row in table(page)] == ["1.000", "<0.001"]
        assert page.locator(".small-print").inner_text() == (
            "All weights are in this file. Weights are rounded, by at most 0.00002."
        )
        token(page, 1).click()
        shown(page)
        assert [row[3] for row in table(page)] == ["1.000", "<0.001"]

    def test_only_what_was_chosen_is_read_out(self, short: str, open_page: Open) -> None:
        page = open_page(short)
        status = page.get_by_role("status")
        token(page, 1).hover()
        shown(page)
        assert status.inner_text() == ""
        token(page, 1).click()
        shown(page)
        assert "animal looks most at" in status.inner_text()

    def test_the_worked_example_is_there_step_by_step(self, open_page: Open) -> None:
        example = worked_example()
        page = open_page(html_of(WORDS, layers=1, explanation=example))
        section = page.locator(".steps")
        assert section.locator("tbody tr").count() == len(example.tokens)
        assert section.locator("tfoot").inner_text().split()[:2] == ["Sum", "1.000"]


class TestTwoTexts:
    def test_each_side_looks_its_way(self, cross: str, open_page: Open) -> None:
        for view in ("lines", "text"):
            page = open_page(cross, f"#layer=2&head=0&token=1&view={view}")
            assert head(page) == "Cross layer 0, head 0"
            assert shown(page).startswith("animal looks most at")
            tired = page.get_by_role("option", name="müde").first
            place = tired.bounding_box()
            page.keyboard.press("Escape")
            shown(page)
            tired.hover()
            assert shown(page).startswith("müde is looked at most by")
            # What is below the sentence stays where it is, whatever it says.
            assert tired.bounding_box() == place
            tired.click()
            assert shown(page).startswith("müde is looked at most by")

    def test_a_row_of_the_table_leads_to_the_other_text(self, cross: str, open_page: Open) -> None:
        page = open_page(cross, "#layer=2&head=0&token=1")
        page.locator(".key-table tbody tr").first.click()
        assert "is looked at most by" in shown(page)

    def test_the_grid_has_groups(self, cross: str, open_page: Open) -> None:
        page = open_page(cross)
        assert page.locator(".grid-heading").all_inner_texts() == ["encoder", "decoder", "cross"]
        page.locator("[data-block='0'][data-section='1']").click()
        assert head(page) == "Encoder layer 0, head 1"

    def test_stacks_are_reached_by_name(self, cross: str, open_page: Open) -> None:
        page = open_page(cross, "#layer=0&head=0")
        page.get_by_label("cross", exact=True).check()
        assert head(page) == "Cross layer 0, head 0"


class TestSentencePairs:
    def test_looks_from_one_to_the_other(self, open_page: Open) -> None:
        call = call_of(len(WORDS))
        made = regard.page(call, WORDS, sentence_b_start=6)
        page = open_page(made.html, "#layer=0&head=2&token=7&sentences=BA")
        weights = call.matrix.dense()[0, 2, 7]
        shown(page)
        rows = table(page)
        assert [int(row[2]) for row in rows] == weights[:6].argsort(descending=True).tolist()
        missing = 100 * weights[6:].sum().item()
        (share,) = re.findall(r"not on these tokens\s+(.*) %", page.locator("tfoot").inner_text())
        assert float(share.strip("<> ")) == pytest.approx(missing, abs=1)
        token(page, 3).click()
        assert shown(page) == "cross looks at nothing between these sentences."
        page.get_by_label("Sentences").select_option("all")
        shown(page)
        assert len(table(page)) == len(WORDS)


class TestHostileTokens:
    def test_are_only_text(self, open_page: Open) -> None:
        for view in ("lines", "text"):
            page = open_page(html_of(HOSTILE, layers=1, title="<b>&"), f"#view={view}")
            texts = page.locator(".column.queries .token, .words .token").all_inner_texts()
            assert len(texts) == len(HOSTILE)
            assert texts[0].strip() == HOSTILE[0]
            assert all(text.strip() for text in texts)
            assert page.locator("#regard img, #regard textarea, #regard script").count() == 0
            for index in range(len(HOSTILE)):
                token(page, index).hover()
                shown(page)

    def test_right_to_left_text_stays_where_it_is(self, open_page: Open) -> None:
        page = open_page(html_of(["a", "שלום", "עולם", "b", "c"], layers=1), "#view=text")
        lefts = page.locator(".words .token").evaluate_all(
            "tokens => tokens.map(token => token.getBoundingClientRect().left)"
        )
        assert lefts == sorted(lefts)


class TestLongText:
    def test_is_running_text_with_a_strip(self, long: str, open_page: Open) -> None:
        page = open_page(long)
        assert page.locator(".switch.view input[value=lines]").is_disabled()
        strip = page.locator(".minimap")
        box = strip.bounding_box()
        strip.click(position={"x": 5, "y": box["height"] - 5})
        until(page, "document.querySelector('.scroller').scrollTop > 500")

    @pytest.mark.parametrize("has_touch", [False, True])
    def test_the_strip_is_as_high_as_the_text(
        self, long: str, open_page: Open, has_touch: bool
    ) -> None:
        page = open_page(long, viewport={"width": 390, "height": 844}, has_touch=has_touch)
        for height in (844, 640):
            page.set_viewport_size({"width": 390, "height": height})
            shown(page)
            strip, text = (page.locator(at).bounding_box() for at in (".minimap", ".scroller"))
            assert strip["height"] == text["height"]

    def test_only_what_changes_is_touched(self, long: str, open_page: Open) -> None:
        page = open_page(long)
        page.evaluate(
            """() => { window.touched = new Set();
              new MutationObserver(all => { for (const one of all) window.touched.add(one.target) })
                .observe(document.querySelector('.words'), {attributes: true, subtree: true}) }"""
        )
        token(page, 3).hover()
        shown(page)
        # Sixteen keys before, sixteen after, and the token itself.
        assert 0 < page.evaluate("window.touched.size") <= 34

    def test_a_token_out_of_sight_is_brought_into_sight(self, long: str, open_page: Open) -> None:
        until(open_page(long, "#layer=0&head=0&token=1400"), IN_SIGHT)

    def test_opens_at_its_top_and_the_text_at_the_token(self, open_page: Open) -> None:
        # One line, which is laid out as a whole.
        html = html_of([f" word-{number}" for number in range(300)], layers=1)
        page = open_page(html, "#layer=0&head=0&token=225")
        until(page, IN_SIGHT)
        page.wait_for_timeout(300)
        assert page.evaluate(IN_SIGHT)
        assert page.evaluate("scrollY") == 0


class TestDamage:
    def test_of_one_layer_leaves_the_others(self, short: str, open_page: Open) -> None:
        damaged = re.sub(r'(id="regard-edges-1">.{20}).*?(</script>)', r"\1\2", short, count=1)
        page = open_page(damaged, "#layer=1&head=0&token=1")
        assert "The weights of layer 1 cannot be read" in page.get_by_role("alert").inner_text()
        page.locator("[data-block='2'][data-section='0']").click()
        assert shown(page).startswith("animal looks")

    def test_of_the_maps_leaves_the_weights(self, long: str, open_page: Open) -> None:
        damaged = re.sub(r'(id="regard-maps">.{20}).*?(</script>)', r"\1\2", long, count=1)
        page = open_page(damaged)
        assert "maps of the heads cannot be read" in page.get_by_role("alert").first.inner_text()
        assert "looks most at" in shown(page)

    def test_of_the_description_is_said(self, short: str, open_page: Open) -> None:
        page = open_page(short.replace('{"version":4', '{"version":4,,', 1))
        assert "the file is damaged" in page.get_by_role("alert").inner_text()


class TestNotebook:
    def test_works_in_a_sandboxed_frame(self, open_page: Open) -> None:
        made = regard.page(calls_of(len(WORDS)), WORDS)
        page = open_page(f"<!doctype html><meta charset=utf-8>{made._repr_html_()}")
        frame = page.frame_locator("iframe")
        frame.locator(".column.queries .token").nth(1).click()
        frame.locator(".token.pinned").wait_for()
        frame.locator(".theme").click()
        assert frame.locator(".sentence").inner_text().startswith("animal looks")


def test_a_long_page_is_small_and_opens(open_page: Open) -> None:
    """8,192 tokens and 270 heads: one layer is computed, and stands for all thirty."""
    length, num_layers = 8_192, 30
    generator = torch.Generator().manual_seed(0)
    query, key = (2 * torch.randn(1, 9, length, 64, generator=generator) for _ in range(2))
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    call = AttentionCall.of(matrix, "layers.0", index=0)
    text = TextPart(0, "text", [" word"] * length, list(range(length)))
    layer = TextLayer(call, "", "layer", "0", text, text)
    stack = contents_of([layer], None, count=16, map_size=64, progress=False)
    shown = Shown(
        [layer] * num_layers,
        [range(num_layers)],
        [*stack.layers] * num_layers,
        dict.fromkeys(range(num_layers), stack.means[0]),
        [stack.average],
        16,
        [{"layer": 0, "head": 0, "token": 5, "why": "it is"}],
    )
    words = {"title": "Long", "about": "", "explanation": None, "sentence_b_start": None}
    page = composed(shown, words, limit=28_000_000)
    assert 1e6 < len(page.html) < 30e6
    # How soon, `benchmarks.page` measures: a shared machine may be busy for minutes.
    open_page(page.html).wait_for_selector("[role=grid]")
