"""Pages of effects: signs, colours and words."""

import pytest

import regard
from tests.views.page.pages import Open, shown, token
from tests.views.test_page_of_effects import TARGET, call_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

TOKENS = ["An", "apple", "a", "day", "keeps", "the", "doctor", "away", "."]


def test_effects_have_signs_in_the_table_and_in_colours(open_page: Open) -> None:
    call, effects, _ = call_of(len(TOKENS), "layers.0.attn")
    page = open_page(
        regard.page(call, TOKENS, effect_on=TARGET).html, "#layer=0&head=1&token=7&view=text"
    )
    assert shown(page).startswith("Of the looks of away, the one at ")
    assert page.locator(".subject").inner_text().startswith(f"Effect on {TARGET}: blue")
    row = effects[1, 7]
    rows = page.locator(".key-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    assert [int(cells[2]) for cells in rows] == row.abs().argsort(descending=True)[:8].tolist()
    for cells in rows:
        assert float(cells[3].replace("−", "-")) == pytest.approx(
            row[int(cells[2])].item(), abs=1e-3
        )
    for index in range(8):
        classes = token(page, index).get_attribute("class").split()
        assert "lit" in classes
        assert ("against" in classes) == (row[index] < 0)
    assert not page.locator(".key-table tfoot td").count()


def test_heads_are_added_up_and_coloured_by_their_effects(open_page: Open) -> None:
    call, effects, heads = call_of(len(TOKENS), "layers.0.attn")
    page = open_page(regard.page(call, TOKENS, effect_on=TARGET).html, "#layer=0&head=mean&token=7")
    shown(page)
    assert page.locator(".headline h2").inner_text() == "Layer 0, sum of 3 heads"
    figures = page.locator(".column.keys .figure").all_inner_texts()[:8]
    expected = effects.sum(dim=0)[7, :8].tolist()
    assert [float(one.replace("−", "-")) for one in figures] == pytest.approx(expected, abs=1e-3)
    assert page.get_by_label("Show").input_value() == "effect"
    page.locator("[data-block='0'][data-section='2']").hover()
    figure = page.locator(".tooltip").inner_text().rsplit(" ", 1)[1]
    assert float(figure.replace("−", "-")) == pytest.approx(heads[2].item(), rel=1e-3)
