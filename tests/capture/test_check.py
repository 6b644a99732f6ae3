"""Each call is checked against what its kernel returned."""

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.matrix import Entropy
from tests.capture.calls import Kernel
from tests.capture.models import random, rows, same
from tests.capture.wrong import AlikeValues, of_one_layer, plain, scaled_differently
from tests.capture.zoo import LENGTH, ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "nothing_registered")

HALF = (torch.bfloat16, torch.float16)


def without_mask(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **o: Any) -> Any:
    everyone = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool)
    return plain(module, query, key, value, everyone, **o)


def one_row_wrong(*arguments: Any, **options: Any) -> Any:
    """Get the last row of one head wrong; it is always compared."""
    output, weights = plain(*arguments, **options)
    output = output.clone()
    output[-1, -1, 2] *= 1.01
    return output, weights


class TestCheck:
    @pytest.mark.parametrize("padding", ["none", "left", "right"])
    @pytest.mark.parametrize("wrong", [scaled_differently, without_mask, one_row_wrong])
    def test_a_broken_kernel_is_found(
        self, wrong: Callable[..., Any], padding: str, register: Callable[..., str]
    ) -> None:
        model = made(ZOO["Llama"], register(of_one_layer(wrong, layer=1)))
        with regard.watch(model) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs(padding))
        assert [call.check.passed for call in seen] == [True, False]
        right, broken = rows(seen)[1:]
        assert right[-1].startswith("✓")
        assert re.fullmatch(r"✗ \de[+-]\d\d", broken[-1])
        rule = r"^call 1 \(layers.1.self_attn\), computed by own, differs from A @ V"
        with pytest.raises(RuntimeError, match=rule):
            seen.verify()

    def test_how_many_are_wrong(self, register: Callable[..., str]) -> None:
        model = made(ZOO["Llama"], register(scaled_differently))
        with regard.watch(model) as seen, torch.no_grad():
            for _ in range(3):
                model(**ZOO["Llama"].inputs("none"))
        with pytest.raises(RuntimeError, match=r"call 0 .*; 5 other calls failed too$"):
            seen.verify()

    def test_the_size_of_a_difference(self, register: Callable[..., str]) -> None:
        def a_quarter_more(*arguments: Any, **options: Any) -> Any:
            return 1.25 * plain(*arguments, **options)[0], None

        model = AlikeValues(register(a_quarter_more))
        with regard.watch(model) as seen:
            model(random(2, 3, 9, 4))
        # Of values that are all alike, each row is one of them, whatever the weights.
        assert seen[0].check.gap == pytest.approx(0.25, rel=1e-5)

    def test_weights_are_believed_where_the_kernel_is_not(
        self, register: Callable[..., str]
    ) -> None:
        written: list[Tensor] = []

        def attention(
            module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **o: Any
        ) -> Any:
            key, value = (x.repeat_interleave(2, dim=1) for x in (key, value))
            # No softmax at all.
            weights = (query @ key.mT).square()
            weights = weights / weights.sum(dim=-1, keepdim=True)
            written.append(weights)
            return (weights @ value).transpose(1, 2), weights

        model = made(ZOO["Llama"], register(attention))
        with regard.watch(model) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs("none"))
        assert [call.check.passed for call in seen] == [True] * 2
        for call, expected in zip(seen, written, strict=True):
            assert torch.equal(call.matrix.dense(), expected)
            assert (call.heads, call.queries, call.keys) == (4, LENGTH, LENGTH)
            with pytest.raises(ValueError, match=r"has weights only, no queries and keys"):
                _ = call.query
        seen.verify()

    def test_not_asked_for(self, register: Callable[..., str]) -> None:
        model = made(ZOO["Llama"], register(scaled_differently))
        with regard.watch(model, check=False) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs("none"))
        assert [row[-1] for row in rows(seen)[1:]] == ["—"] * 2
        assert [call.check.passed for call in seen] == [None] * 2
        rule = (
            r"^2 of 2 calls were not compared with their kernel's output, the first is call 0 "
            r"\(layers.0.self_attn\): watch the model with check=True, which is the default$"
        )
        with pytest.raises(RuntimeError, match=rule):
            seen.verify()

    def test_dropout_is_not_compared(self) -> None:
        def attend(x: Tensor, share: float) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x, dropout_p=share)

        kernel = Kernel(attend)
        with regard.watch(kernel) as seen:
            kernel(random(1, 2, 9, 4), 0.5)
            kernel(random(1, 2, 9, 4), 0.0)
        assert rows(seen)[1][-1] == "dropout"
        assert seen[1].check.passed
        rule = (
            r"^1 of 2 calls were not compared .*call 0 .*: dropout .*, call model.eval\(\) first$"
        )
        with pytest.raises(RuntimeError, match=rule):
            seen.verify()

    @pytest.mark.pairwise
    @pytest.mark.parametrize("padding", ["none", "left", "right"])
    @pytest.mark.parametrize(
        ("name", "dtype"),
        [
            *itertools.product(["Llama", "BERT", "Gemma 2", "gpt-oss"], HALF),
            *itertools.product(["Llama", "BERT"], [torch.float32, torch.float64]),
            *itertools.product(["Gemma 2", "gpt-oss"], [torch.float32]),
        ],
    )
    def test_what_is_right_passes(self, name: str, dtype: torch.dtype, padding: str) -> None:
        kind = copy.deepcopy(ZOO[name])
        # Its experts want rows of half numbers to be a multiple of 16 bytes.
        kind.config.intermediate_size = 32
        model = made(kind).to(dtype)
        with regard.watch(model) as seen, torch.no_grad():
            model(**kind.inputs(padding))
        assert [(call.check.passed, call.dtype) for call in seen] == [(True, dtype)] * 2
        seen.verify()

    def test_nan_is_not_hidden_by_weights(self) -> None:
        model = made(ZOO["Llama"], "eager")
        nn.init.constant_(model.layers[1].self_attn.v_proj.weight, torch.nan)
        with regard.watch(model) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs("none"))
        with pytest.raises(RuntimeError, match=r"^call 1 .* returned NaN"):
            seen.verify()

    @pytest.mark.parametrize("dtype", HALF)
    def test_autocast(self, dtype: torch.dtype) -> None:
        kind = ZOO["Llama"]
        model = made(kind)
        with (
            regard.watch(model) as seen,
            regard.watch(model, keep=[Entropy()]) as reduced,
            torch.no_grad(),
            torch.autocast("cpu", dtype=dtype),
        ):
            model(**kind.inputs("none"))
        seen.verify()
        for call, other in zip(seen, reduced, strict=True):
            same(other.results[0].nats, call.matrix.entropy().nats)

    def test_autocast_of_what_the_kernel_is_given(self) -> None:
        kernel = Kernel(F.scaled_dot_product_attention)
        query, key, value = (random(2, 3, 40, 16, seed=seed) for seed in range(3))
        with regard.watch(kernel) as seen, torch.autocast("cpu", dtype=torch.bfloat16):
            output = kernel(8 * query, key, value)
        assert output.dtype == torch.bfloat16
        seen.verify()
        again = seen[0].matrix.dense() @ value.bfloat16().float()
        rounding = 4 * torch.finfo(torch.bfloat16).eps * value.abs().max().item()
        torch.testing.assert_close(output.float(), again, rtol=0, atol=rounding)


def test_large_scores_are_compared_as_exactly() -> None:
    query, key, value = (random(1, 2, 16, 8, seed=seed) for seed in range(3))
    model = Kernel(F.scaled_dot_product_attention)
    with regard.watch(model) as seen:
        model(3000.0 * query, key, value)
    assert seen[0].check.gap < 1e-5
