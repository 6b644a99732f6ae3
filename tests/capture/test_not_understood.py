"""Calls that can't be looked into are told of, and harm no others."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

import regard
from regard.matrix import Entropy
from tests.capture.calls import Kernel
from tests.capture.models import DIM, HEADS, HTML_RED, WIDTH, Attention, inputs, random, rows
from tests.capture.wrong import AlikeValues, plain

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "nothing_registered")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
class TestNotUnderstood:
    def not_understood(self, seen: Any, module: str, reason: str) -> None:
        (call,) = seen
        assert (call.module, bool(call.problem)) == (module, True)
        assert rows(seen)[1][-1].startswith("✗ ")
        assert re.search(reason, rows(seen)[1][-1])
        for part in ("matrix", "query", "key"):
            with pytest.raises(ValueError, match=r"was not understood: "):
                getattr(call, part)
        with pytest.raises(RuntimeError, match=r"^call 0 \(.*was not understood: "):
            seen.verify()
        assert HTML_RED in seen._repr_html_()

    @pytest.mark.parametrize("keep", ["tensors", [Entropy()]])
    def test_nested_tensors(self, keep: Any) -> None:
        def attend(*parts: Tensor) -> Tensor:
            nested = torch.nested.nested_tensor(list(parts), layout=torch.jagged)
            nested = nested.unflatten(-1, (HEADS, DIM)).transpose(1, 2)
            return F.scaled_dot_product_attention(nested, nested, nested)

        kernel = Kernel(attend)
        parts = [random(3, WIDTH), random(5, WIDTH, seed=1)]
        expected = kernel(*parts).unbind()
        with regard.watch(kernel, keep=keep) as seen:
            found = kernel(*parts).unbind()
        assert len(found) == 2
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        self.not_understood(seen, "", "nested tensors are not supported")

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        "shape",
        [
            lambda output: output.transpose(1, 2),
            lambda output: output.flatten(2),
            lambda output: output[..., :5],
            lambda output: output[:, 1:],
        ],
    )
    def test_outputs_of_a_wrong_shape(
        self, shape: Callable[[Tensor], Tensor], register: Callable[..., str]
    ) -> None:
        def attention(*arguments: Any, **options: Any) -> Any:
            return shape(plain(*arguments, **options)[0]), None

        model = AlikeValues(register(attention))
        x = random(2, 3, 7, 6)
        expected = model(x)
        with regard.watch(model) as seen:
            found = model(x)
        assert torch.equal(found, expected)
        assert seen[0].problem or seen[0].check.passed is False
        self.not_understood(seen, "", r"output|shape|size|index|dimension")

    def test_errors_have_one_line(self) -> None:
        class Odd(nn.Module):
            is_causal = True

            def forward(self, x: Tensor) -> Any:
                found = AttentionInterface().get_interface("sdpa", plain)
                return found(self, x, x, x, None, scaling=1.0, cache=object())

        model = Odd()
        with regard.watch(model) as seen:
            model(random(1, 2, 3, 4))
        self.not_understood(seen, "", "paged caches are not supported")
        assert len(repr(seen).splitlines()) == 2

    def test_others_are_understood(self) -> None:
        parts = nn.ModuleList([Attention(), Kernel(lambda x: x), Attention()])

        def attend(x: Tensor) -> Tensor:
            nested = torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged)
            nested = nested.unflatten(-1, (HEADS, DIM)).transpose(1, 2)
            F.scaled_dot_product_attention(nested, nested, nested)
            return x

        model = nn.Sequential(parts[0], Kernel(attend), parts[2])
        with regard.watch(model) as seen:
            model(inputs())
        assert [bool(call.problem) for call in seen] == [False, True, False]
        assert seen["2"].matrix.shape == (3, HEADS, 5, 5)
        with pytest.raises(RuntimeError, match=r"^call 1 \(1\), .*are not supported$"):
            seen.verify()
