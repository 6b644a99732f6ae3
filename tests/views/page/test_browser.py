"""Pages as people meet them: in a browser, with a pointer, a finger, keys, and hostile texts."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.views.explain import worked_example
from regard.views.page.page import Shown, composed
from regard.views.page.strongest import heads_of, means_of
from regard.views.page.texts import Layer, Text
from tests.views.page.looks import CONTRASTS, TEXT_FAULTS

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.usefixtures("one_thread")]

Open = Callable[..., Any]

HEADS = 3
WORDS = ["The", "animal", "didn't", "cross", "the", "street"]
WORDS += ["because", "it", "was", "too", "tired"]
PHONE = {"viewport": {"width": 360, "height": 780}, "has_touch": True, "is_mobile": True}
HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "</textarea>",
    "<img src=x onerror=alert(1)>",
    "שלום",
    "مرحبا",
    "🦊",
    "👩‍👩‍👧",
    "\ud83d",
    "\udc00",
    "\n",
    "\t",
    " ",
    "",
    "\x00",
    "\u202eabc",
    "a" * 90,
    "&lt;b&gt;",
    "${alert(1)}",
]


def call_of(
    queries: int, keys: int | None = None, *, looks: str = "self", module: str = "layers.0.attn"
) -> Any:
    generator = torch.Generator().manual_seed(queries + len(module))
    query, key = (
        2 * torch.randn(1, HEADS, size, 6, generator=generator)
        for size in (queries, keys or queries)
    )
    return SimpleNamespace(matrix=regard.AttentionMatrix(query, key), module=module, looks=looks)


def calls_of(tokens: int, *, layers: int = 4) -> list[Any]:
    return [
        call_of(tokens, module=f"{'l' * (1 + layer)}ayers.{layer}.attn") for layer in range(layers)
    ]


def html_of(tokens: list[str], *, layers: int = 4, **options: Any) -> str:
    return regard.page(calls_of(len(tokens), layers=layers), tokens, **options).html


@pytest.fixture(scope="module")
def short() -> str:
    """A page of a short text, which is shown as lines."""
    return html_of(WORDS, title="A short text", about="a small model")


@pytest.fixture(scope="module")
def long() -> str:
    """A page of a text that is too long for lines."""
    tokens = [f"w{number}" if number % 9 else "\n" for number in range(1, 1501)]
    return html_of(tokens, layers=1)


@pytest.fixture(scope="module")
def cross() -> str:
    """A page of an encoder–decoder model."""
    source, target = ["Das", "Tier", "war", "müde", "."], ["The", "animal", "was", "tired"]
    calls = [
        call_of(5, module="encoder.layers.0"),
        call_of(4, module="decoder.layers.0"),
        call_of(4, 5, looks="cross", module="decoder.layers.0.cross"),
    ]
    return regard.page(calls, target, source=source).html


def shown(page: Any) -> str:
    """The sentence about the token in question, when the page has come to rest."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.locator(".sentence").inner_text()


def head(page: Any) -> str:
    shown(page)
    return page.locator(".headline h2").inner_text()


def token(page: Any, index: int, side: str = "queries") -> Any:
    """The element of a token, among lines or in running text."""
    lines = page.locator(f".column.{side} .token")
    return lines.nth(index) if lines.count() else page.locator(".words .token").nth(index)


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
        assert page.locator(".legend .bar").is_visible()


class TestFinger:
    def test_tap_pins(self, short: str, open_page: Open) -> None:
        page = open_page(short, **PHONE)
        token(page, 3).tap()
        assert shown(page).startswith("cross looks")
        assert page.locator(".token.pinned").count() == 1
        page.get_by_role("button", name="Let go").tap()
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
        assert head(page) == "Layer 1, mean of heads"
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
        assert head(page) == "All layers, mean of heads"

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


class TestWeights:
    def test_the_table_has_the_weights_of_the_model(self, open_page: Open) -> None:
        call = call_of(len(WORDS))
        page = open_page(regard.page(call, WORDS).html, "#layer=0&head=2&token=7")
        weights = call.matrix.dense()[0, 2, 7]
        rows = page.locator(".key-table tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
        )
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
        page.wait_for_timeout(400)
        found = page.evaluate("location.hash")
        again = open_page(short, found)
        assert "token=6" in found
        assert (head(again), shown(again)) == (head(page), shown(page))

    @pytest.mark.parametrize("hash", ["#layer=99&head=x&token=-1", "#token=99999", "#%%%", "#=&=&"])
    def test_that_makes_no_sense_does_no_harm(self, short: str, open_page: Open, hash: str) -> None:
        assert head(open_page(short, hash)).startswith("Layer")


class TestTwoTexts:
    def test_each_side_looks_its_way(self, cross: str, open_page: Open) -> None:
        for view in ("lines", "text"):
            page = open_page(cross, f"#layer=2&head=0&token=1&view={view}")
            assert head(page) == "Cross layer 0, head 0"
            assert shown(page).startswith("animal looks most at")
            page.keyboard.press("Escape")
            page.get_by_role("option", name="müde").first.click()
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
        page.wait_for_timeout(200)
        assert page.evaluate("document.querySelector('.scroller').scrollTop") > 500

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
        page = open_page(long, "#layer=0&head=0&token=1400")
        page.wait_for_timeout(200)
        assert page.locator(".token.chosen").evaluate(
            """token => { const box = token.getBoundingClientRect();
              const around = token.closest('.scroller').getBoundingClientRect();
              return box.top >= around.top - 1 && box.bottom <= around.bottom + 1 }"""
        )


class TestDamage:
    def test_of_one_layer_leaves_the_others(self, short: str, open_page: Open) -> None:
        damaged = re.sub(r'(id="regard-edges-1">.{20}).*?(</script>)', r"\1\2", short, count=1)
        page = open_page(damaged, "#layer=1&head=0&token=1")
        assert "The weights of layer 1 cannot be read" in page.get_by_role("alert").inner_text()
        page.locator("[data-block='2'][data-section='0']").click()
        assert shown(page).startswith("animal looks")

    def test_of_the_maps_leaves_the_weights(self, short: str, open_page: Open) -> None:
        damaged = re.sub(r'(id="regard-maps">.{20}).*?(</script>)', r"\1\2", short, count=1)
        page = open_page(damaged)
        assert "maps of the heads cannot be read" in page.get_by_role("alert").first.inner_text()
        assert "looks most at" in shown(page)

    def test_of_the_description_is_said(self, short: str, open_page: Open) -> None:
        page = open_page(short.replace('{"version":1', '{"version":1,,', 1))
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


class TestColours:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("direction", ["to", "from"])
    def test_contrast_is_enough(
        self, short: str, open_page: Open, scheme: str, direction: str
    ) -> None:
        page = open_page(short, f"#view=text&token=3&direction={direction}", color_scheme=scheme)
        assert min(page.evaluate(CONTRASTS)) >= 4.5

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
    @pytest.mark.parametrize("view", ["lines", "text"])
    def test_no_texts_overlap_or_overflow(
        self, short: str, cross: str, open_page: Open, width: int, view: str
    ) -> None:
        steps = html_of(WORDS[:4], layers=1, explanation=worked_example())
        for html in (short, cross, html_of(HOSTILE, layers=2), steps, html_of(["x"], layers=1)):
            for state in ("token=3&direction=from", "layer=2&head=0&token=1&colour=entropy"):
                page = open_page(html, f"#view={view}&{state}", **screen(width))
                shown(page)
                assert page.evaluate(TEXT_FAULTS) == []
                page.context.close()

    @pytest.mark.parametrize("width", [600, 768, 1199, 2000])
    def test_widths_between_and_beyond(self, cross: str, open_page: Open, width: int) -> None:
        for view in ("lines", "text"):
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


def test_a_long_page_is_small_and_opens(open_page: Open) -> None:
    """8,192 tokens and 270 heads: one layer is computed, and stands for all thirty."""
    length, num_layers = 8_192, 30
    generator = torch.Generator().manual_seed(0)
    query, key = (2 * torch.randn(1, 9, length, 64, generator=generator) for _ in range(2))
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    call = SimpleNamespace(matrix=matrix, module="layers.0", looks="self")
    layer = Layer(call, "", "0", 0, 0)
    found = heads_of(layer, None, count=16, map_size=64)
    (mean,), average = means_of([layer], None, count=16, progress=False)
    texts = [Text("text", [" word"] * length)]
    shown = Shown(
        texts,
        [layer] * num_layers,
        [range(num_layers)],
        [found] * num_layers,
        dict.fromkeys(range(num_layers), mean),
        [average],
        16,
    )
    words = {"title": "Long", "about": "", "explanation": None}
    page = composed(shown, words, limit=28_000_000)
    assert 1e6 < len(page.html) < 30e6
    # How soon, `benchmarks.page` measures: a shared machine may be busy for minutes.
    open_page(page.html).wait_for_selector("[role=grid]")
