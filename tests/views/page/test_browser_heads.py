"""Heads beside one another on a page: their maps, and their lines in colours."""

import re

import pytest
import torch

import regard
from tests.browsing import until
from tests.views.page.pages import HEADS, WORDS, Open, call_of, head, shown, token

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

DARKEST = """([tile, row, column]) => {
  const canvas = document.querySelectorAll('.head-tile .map-cells')[tile];
  const [x, y] = [(column + 0.5) * canvas.width / 11, (row + 0.5) * canvas.height / 11];
  return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3) }"""
"""The colour of a cell."""


def cell(page: "object", picture: str, row: int, column: int, *, across: int = 11) -> None:
    """Point at a cell of a map."""
    cells = page.locator(f"{picture} .map-cells").first  # type: ignore[attr-defined]
    box = cells.bounding_box()
    x, y = ((one + 0.5) / across for one in (column, row))
    cells.hover(position={"x": box["width"] * x, "y": box["height"] * y})


def test_all_heads_of_a_layer_are_maps_with_what_the_token_looks_at(open_page: Open) -> None:
    call = call_of(len(WORDS))
    page = open_page(regard.page(call, WORDS).html, "#layer=0&head=1&token=7&view=heads")
    shown(page)
    weights = call.matrix.dense()[0]
    notes = page.locator(".head-tile .panel-head .legend").all_inner_texts()
    assert len(notes) == HEADS + 1
    for number, rows in enumerate([*weights, weights.mean(dim=0)]):
        words, figure = notes[number].rsplit(" ", 1)
        assert words == WORDS[rows[7].argmax()]
        assert float(figure) == pytest.approx(rows[7].max().item(), abs=1e-3)
        strongest = divmod(int(rows.argmax()), len(WORDS))
        assert page.evaluate(DARKEST, [number, *strongest]) == [0x16, 0x3A, 0x7D]


def test_a_head_is_chosen_among_all(short: str, open_page: Open) -> None:
    page = open_page(short, "#layer=2&head=0&token=7&view=heads")
    page.get_by_role("button", name="Head 2").click()
    assert head(page) == "Layer 2, head 2"
    assert page.locator(".head-tile [aria-current=true]").inner_text() == "Head 2"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    # The mean over all layers has no heads.
    assert head(page) == "All 4 layers, mean of heads"
    assert page.locator(".lines-view").is_visible()


def test_a_map_says_what_is_under_the_pointer(open_page: Open) -> None:
    call = call_of(len(WORDS))
    page = open_page(regard.page(call, WORDS).html, "#layer=0&head=1&token=7")
    shown(page)
    cell(page, ".map", 7, 8)
    words, figure = page.locator(".tooltip").inner_text().rsplit(" ", 1)
    assert words == "it → was:"
    assert float(figure) == pytest.approx(call.matrix[0, 1, 7, 8].item(), abs=1e-3)


def test_a_cell_of_several_tokens_says_its_largest_weight(long: str, open_page: Open) -> None:
    page = open_page(long, "#layer=0&head=1&token=7")
    shown(page)
    # 1,500 tokens in cells of 24 are 63 cells.
    cell(page, ".map", 2, 5, across=63)
    words = page.locator(".tooltip").inner_text()
    assert re.fullmatch(r"48–71 → 120–143: (largest [\d.]+|not in this file)", words)


def test_the_lines_of_a_mean_have_the_colours_of_its_heads(short: str, open_page: Open) -> None:
    page = open_page(short, "#layer=0&head=mean&token=7")
    shown(page)
    strokes = """() => [...new Set([...document.querySelectorAll('.strong path')]
        .map(path => path.style.stroke))]"""
    assert len(page.evaluate(strokes)) == HEADS
    page.get_by_role("button", name="Head 1", exact=True).click()
    assert page.evaluate(strokes) == ["var(--head-1)"]
    page.get_by_role("button", name="Head 2", exact=True).click()
    assert len(page.evaluate(strokes)) == 2
    page.locator("[data-block='0'][data-section='0']").click()
    shown(page)
    assert not page.locator(".chips").is_visible()
    token(page, 3).click()
    assert shown(page).startswith("cross looks")


def test_lines_of_more_than_eight_heads_differ(open_page: Open) -> None:
    x = torch.randn(1, 18, len(WORDS), 4, generator=torch.Generator().manual_seed(0))
    page = open_page(
        regard.page(regard.AttentionMatrix(x, x), WORDS).html, "#layer=0&head=mean&token=7"
    )
    shown(page)
    lines = """() => new Set([...document.querySelectorAll('.strong path')].map(
        path => path.style.stroke + path.style.strokeDasharray)).size"""
    until(page, f"({lines})() === 18")
    chips = "chip => getComputedStyle(chip).backgroundImage"
    assert len(set(page.locator(".chips button").evaluate_all(f"all => all.map({chips})"))) == 18


def test_maps_have_a_legend_with_the_largest_weight(open_page: Open) -> None:
    call = call_of(len(WORDS))
    page = open_page(regard.page(call, WORDS).html, "#layer=0&head=1&token=7")
    shown(page)
    largest = [weights.max().item() for weights in call.matrix.dense()[0]]
    legend = page.locator(".map .scale").inner_text().split()
    assert legend[0] == "0"
    assert float(legend[1]) == pytest.approx(largest[1], abs=1e-3)
    assert "square root of the weight" in page.locator(".map").inner_text()
    assert "from 0 to each head’s own largest" in page.locator(".heads .legend").first.inner_text()
    page.get_by_role("radio", name="All heads").check()
    page.locator(".head-tile .most").nth(HEADS - 1).wait_for()
    said = page.locator(".head-tile .most").all_inner_texts()
    assert [float(one.removeprefix("largest ")) for one in said[:HEADS]] == pytest.approx(
        largest, abs=1e-3
    )


def test_the_table_is_not_cut_within_a_line(open_page: Open) -> None:
    call = call_of(len(WORDS))
    page = open_page(regard.page(call, WORDS).html, "#layer=0&head=1&token=7")
    page.set_viewport_size({"width": 1440, "height": 900})
    shown(page)
    table = "document.querySelector('.table')"
    until(page, f"{table}.scrollHeight <= {table}.clientHeight")
    # Each key is in one line, and to be seen as a whole.
    for row in page.locator(".key-table tbody tr").all():
        key = row.locator(".quoted")
        assert key.evaluate("one => one.scrollWidth <= one.clientWidth")
        assert row.evaluate("one => one.clientHeight") < 40
    # In a lower window, what there is no room for fades out.
    page.set_viewport_size({"width": 1440, "height": 400})
    fade = f"getComputedStyle({table}, '::after').backgroundImage"
    until(page, f"{fade}.startsWith('linear-gradient')")


def test_heads_are_listed_by_the_chosen_token(short: str, open_page: Open) -> None:
    page = open_page(short, "#layer=0&head=0&token=7")
    page.get_by_label("Show").select_option("token")
    first = page.locator(".ranking button").first
    name, word = first.inner_text().rsplit(" ", 1)[0].rsplit(" ", 1)
    first.click()
    assert head(page) == name
    assert word in page.locator(".column.keys .token.lit").all_inner_texts()
    before = page.locator(".ranking").inner_text()
    token(page, 1, "keys").click()
    shown(page)
    until(page, f"document.querySelector('.ranking').innerText !== {before!r}")
    assert page.locator(".heads .legend p").inner_text().startswith("Strongest looks at animal")


def test_why_a_token_is_shown_first_is_said(short: str, open_page: Open) -> None:
    page = open_page(short)
    shown(page)
    why = page.get_by_text("Shown first: of all words it looks hardest at another")
    assert why.is_visible()
    # Not of another head, or of the mean of all.
    for key, back in (("m", "m"), ("ArrowDown", "ArrowUp")):
        before = head(page)
        page.keyboard.press(key)
        until(page, f"document.querySelector('.headline h2').innerText !== {before!r}")
        why.wait_for(state="hidden")
        page.keyboard.press(back)
        until(page, f"document.querySelector('.headline h2').innerText === {before!r}")
        why.wait_for()
    token(page, 1).click()
    shown(page)
    assert not page.get_by_text("Shown first").is_visible()
