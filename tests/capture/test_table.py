"""The table of what was seen, in a terminal and in a notebook."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import regard
from tests.capture.calls import Kernel
from tests.capture.models import (
    HEADS,
    HTML_RED,
    NUM_LAYERS,
    RED,
    Attention,
    Twice,
    inputs,
    random,
    rows,
)
from tests.capture.wrong import of_one_layer, scaled_differently
from tests.capture.zoo import ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "nothing_registered")


class TestTable:
    def test_a_row_per_call(self, seen: Any) -> None:
        header, *body = rows(seen)
        names = ["module", "looks at", "heads", "queries × keys", "pattern", "kernel", "check"]
        assert header == names
        assert len(body) == 2 * NUM_LAYERS
        for number, (index, module, looks, heads, sizes, pattern, kernel, check) in enumerate(body):
            cross = number % 2
            assert index == str(number)
            assert module == f"layers.{number // 2}.{'cross' if cross else 'self'}_attn"
            assert looks == ("cross" if cross else "self")
            assert heads == str(HEADS)
            assert sizes == ("5 × 10" if cross else "5 × 5")
            assert (pattern, kernel) == ("everyone()", "sdpa")
            assert re.fullmatch(r"✓ \de[+-]\d\d", check)

    def test_grouped_heads_and_patterns(self) -> None:
        grouped = Kernel(
            lambda q, k: regard.attend(
                q, k, k, pattern=regard.causal(), bias=regard.positions.alibi(9)
            )
        )
        with regard.watch(grouped) as seen:
            grouped(random(1, 9, 1234, 2), random(1, 3, 1234, 2, seed=1))
        (row,) = rows(seen)[1:]
        assert row[:-1] == [
            "0", "(the model)", "self", "9 / 3", "1,234 × 1,234", "causal() + bias", "attend",
        ]  # fmt: skip

    def test_columns_stand_below_each_other(self, seen: Any) -> None:
        header, *lines = repr(seen).splitlines()
        for line in lines:
            for name in ("module", "looks at", "pattern", "kernel", "check"):
                start = header.index(name)
                assert line[start - 2 : start] == "  "
                assert line[start] != " "

    @pytest.mark.parametrize("times", [40, 57])
    def test_many_calls_are_shortened(self, times: int) -> None:
        repeated = Twice(Attention(), times)
        with regard.watch(repeated) as seen, torch.no_grad():
            repeated(inputs())
        body = rows(seen)[1:]
        numbers = [int(row[0]) for row in body if row[0] != "⋮"]
        assert len(numbers) == 40
        assert [numbers[0], numbers[-1]] == [0, times - 1]
        assert ("17 more" in repr(seen)) == ("17 more" in seen._repr_html_()) == (times == 57)
        assert len(seen) == times

    def test_html_escapes_modules(self) -> None:
        model = nn.Sequential()
        model.add_module("<b>bold & co</b>", Attention())
        with regard.watch(model) as seen:
            model(inputs())
        shown = seen._repr_html_()
        assert "<b>" not in shown
        assert "&lt;b&gt;bold &amp; co&lt;/b&gt;" in shown

    @pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
    def test_html_escapes_patterns(self) -> None:
        blocks = create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, device="cpu")
        flexible = Kernel(lambda x: flex_attention(x, x, x, block_mask=blocks))
        with regard.watch(flexible) as seen:
            flexible(random(1, 2, 16, 4))
        assert "block_mask(<lambda>)" in repr(seen)
        shown = seen._repr_html_()
        assert "<lambda>" not in shown
        assert "block_mask(&lt;lambda&gt;)" in shown

    def test_html_has_a_cell_for_each_of_the_text(self, seen: Any) -> None:
        shown = seen._repr_html_()
        for row in rows(seen)[1:]:
            assert all(f">{cell}</td>" in shown for cell in row)
        assert shown.count("<tr") == 1 + len(seen)
        assert HTML_RED not in shown

    @pytest.mark.parametrize("terminal", [True, False])
    @pytest.mark.parametrize("colours", [True, False])
    def test_failing_calls_are_red(
        self,
        terminal: bool,
        colours: bool,
        register: Callable[..., str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        wrong = made(ZOO["Llama"], register(of_one_layer(scaled_differently, layer=1)))
        with regard.watch(wrong) as seen, torch.no_grad():
            wrong(**ZOO["Llama"].inputs("none"))
        monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
        monkeypatch.delenv("NO_COLOR", raising=False)
        if not colours:
            monkeypatch.setenv("NO_COLOR", "1")
        _, right_row, wrong_row = repr(seen).splitlines()
        assert (RED in wrong_row) == (terminal and colours)
        assert RED not in right_row
        right_row, wrong_row = seen._repr_html_().split("<tr")[-2:]
        assert HTML_RED in wrong_row
        assert HTML_RED not in right_row
