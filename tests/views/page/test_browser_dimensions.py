"""A pair of tokens, number by number."""

import pytest

import regard
from tests.views.page.pages import WORDS, Open, call_of, shown

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def number(words: str) -> float:
    return float(words.replace("−", "-"))


@pytest.mark.parametrize("direction", ["to", "from"])
def test_dimensions_add_up_to_the_score(open_page: Open, direction: str) -> None:
    call = call_of(len(WORDS))
    html = regard.page(call, WORDS, dimensions=True).html
    page = open_page(html, f"#layer=0&head=2&token=7&direction={direction}")
    shown(page)
    choice = page.get_by_label("Other token of the pair")
    name = choice.locator("option").nth(3).inner_text().rsplit(" ", 1)[0]
    choice.select_option("3")
    other = WORDS.index(name)
    query, key = (7, other) if direction == "to" else (other, 7)
    q, k = call.query[0, 2, query].double(), call.key[0, 2, key].double()
    parts = q * k / 6**0.5
    page.locator(".dimensions tfoot").filter(has_text=f"{parts.sum():+.3f}"[1:]).wait_for()
    rows = page.locator(".dimensions tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    assert [int(row[0]) for row in rows] == parts.abs().argsort(descending=True).tolist()
    for row in rows:
        at = int(row[0])
        expected = [q[at].item(), k[at].item(), parts[at].item()]
        assert [number(one) for one in row[1:]] == pytest.approx(expected, abs=6e-4)
    total = page.locator(".dimensions tfoot td").last.inner_text()
    assert number(total) == pytest.approx(parts.sum().item(), abs=6e-4)


def test_a_mean_has_none(open_page: Open) -> None:
    html = regard.page(call_of(len(WORDS)), WORDS, dimensions=True).html
    page = open_page(html, "#layer=0&head=mean&token=7")
    shown(page)
    assert "Choose a token and a head" in page.locator(".dimensions").inner_text()
