"""What axe-core finds on pages: nothing."""

import pytest

import regard
from regard.views.explain import worked_example
from tests.browsing import findings
from tests.views.page.pages import PHONE, WORDS, Open, calls_of
from tests.views.test_page_of_effects import TARGET, call_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize(
    ("view", "scheme"), [("lines", "light"), ("text", "dark"), ("heads", "light")]
)
def test_pages_have_no_findings(open_page: Open, view: str, scheme: str) -> None:
    weights = regard.page(
        calls_of(len(WORDS)), WORDS, explanation=worked_example(), dimensions=True
    ).html
    effects = regard.page(call_of(9, "layers.0.attn")[0], WORDS[:9], effect_on=TARGET).html
    for html, state, settings in (
        (weights, "token=3&colour=token", PHONE),
        (weights, "layer=0&head=mean&token=3", {}),
        (effects, "layer=0&head=1&token=3&direction=from", {}),
    ):
        page = open_page(html, f"#view={view}&{state}", color_scheme=scheme, **settings)
        assert findings(page) == []
        page.context.close()


def test_so_has_an_encoder_and_a_decoder(cross: str, open_page: Open) -> None:
    assert findings(open_page(cross, "#layer=2&head=0&token=1&view=text")) == []
