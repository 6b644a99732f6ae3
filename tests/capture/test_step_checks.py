"""The calls of a generation step are compared together, when it ends or when somebody looks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import regard
from regard.calls.check import check_scores
from tests.capture.calls import Kernel
from tests.capture.generating import LAYERS, NEW, PROMPT, generate, padded, writer
from tests.capture.models import random
from tests.capture.zoo import tokens

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "nothing_registered")


STEP = 3


def wrong_in_one_step(module: Any, query: Tensor, key: Tensor, *others: Any, **options: Any) -> Any:
    """Attend as "sdpa" does, and get a head of one layer wrong in one step."""
    output, weights = sdpa_attention_forward(module, query, key, *others, **options)
    if (module.layer_idx, key.shape[2]) == (1, PROMPT + STEP):
        output = output.clone()
        output[-1, -1, 1] *= 1.01
    return output, weights


@pytest.mark.parametrize("padding", ["none", "left"])
def test_a_step_that_is_wrong_is_named(padding: str, register: Callable[..., str]) -> None:
    model = writer("Llama", register(wrong_in_one_step))
    with regard.watch(model) as seen:
        generate(model, tokens(length=PROMPT), padded(padding, PROMPT))
    number = LAYERS * STEP + 1
    passed = [call.check.passed for call in seen]
    assert passed == [index != number for index in range(LAYERS * NEW)]
    rule = rf"^call {number} \(model.layers.1.self_attn\), computed by own, differs from A @ V"
    with pytest.raises(RuntimeError, match=rule):
        seen.verify()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_same_as_one_by_one(rows: int, dtype: torch.dtype) -> None:
    model = nn.ModuleList(Kernel(F.scaled_dot_product_attention) for _ in range(5))
    several = nn.Module()
    several.parts = model
    given = [
        [random(2, heads, length, 8, seed=seed + n).to(dtype)
         for n, (heads, length) in enumerate([(6, rows), (2, 13), (2, 13)])]
        for seed in range(5)
    ]  # fmt: skip

    def run() -> list[Tensor]:
        return [
            part(q, k, v, enable_gqa=True) for part, (q, k, v) in zip(model, given, strict=True)
        ]

    several.forward = run  # type: ignore[method-assign]
    with regard.watch(several, values=True) as seen:
        outputs = several()
    for call, output in zip(seen, outputs, strict=True):
        alone = check_scores(call.scores, call.value, output, call.index)
        assert call.check.tolerance == alone.tolerance
        assert call.check.gap == pytest.approx(alone.gap, rel=1e-3, abs=1e-9)
        assert call.check.passed


class Overwriting(nn.Module):
    """A model that overwrites whatever it has, at once."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        for _ in range(3):
            output = F.scaled_dot_product_attention(query, key, value)
            for tensor in (query, key, value, output):
                tensor.normal_()
            self.look()


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("looks", [False, True])
def test_tensors_may_be_overwritten(looks: bool, inference: bool) -> None:
    found: list[Any] = []

    def look() -> None:
        if looks:
            found.extend(copy.deepcopy(call.check).gap for call in seen)
            found.extend(call.check.passed for call in seen)

    model = Overwriting(look)
    with regard.watch(model, keep="copies") as seen, torch.inference_mode(inference):
        model(random(1, 2, 1, 4), random(1, 2, 9, 4, seed=1), random(1, 2, 9, 4, seed=2))
    seen.verify()
    assert len(seen) == 3
    assert len(found) == (12 if looks else 0)


def test_nothing_is_kept_for_checks() -> None:
    model = Kernel(F.scaled_dot_product_attention)
    with regard.watch(model) as seen:
        model(random(1, 2, 1, 4), random(1, 2, 9, 4), random(1, 2, 9, 4))
        assert vars(seen[0].check.measured)["rows"] is None
