"""The log-sum-exp that the kernel of a watched model has computed."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

import regard
from regard.matrix.scores import Scores
from tests.capture.calls import Kernel, inputs
from tests.capture.zoo import ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


def known(call: Any) -> Tensor | None:
    source = call.source
    assert isinstance(source, Scores)
    assert source.call.lse is None or isinstance(source.call.lse, Tensor)
    return source.call.lse


def exact(call: Any) -> Tensor:
    """Compute it in float64, of a causal call."""
    query, key = call.query.double(), call.key.double()
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    later = torch.ones(query.shape[2], key.shape[2]).triu(1).bool()
    scores = (query @ key.mT * call.source.call.scale).masked_fill(later, -torch.inf)
    return scores.logsumexp(dim=3)


@pytest.mark.parametrize("frozen", [True, False])
def test_it_is_that_of_the_kernel(frozen: bool) -> None:
    kind = ZOO["Llama"]
    model = made(kind).requires_grad_(not frozen)
    with regard.watch(model, effects=True) as seen:
        model(**kind.inputs("none"))
    for call in seen:
        assert call.kernel == "sdpa"
        lse = known(call)
        assert lse is not None
        torch.testing.assert_close(lse.double(), exact(call), rtol=0, atol=1e-5)
        assert call.check.passed


def test_a_call_of_sdpa_alone() -> None:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    query, key, value = inputs(queries=7)
    model = Kernel(attention)
    # The kernel that has one takes values of the size of keys.
    for values, found in ((key, True), (value, False)):
        with regard.watch(model, effects=True) as seen:
            model(query, key, values)
        lse = known(seen[0])
        assert (lse is not None) is found
        if lse is not None:
            torch.testing.assert_close(lse, exact(seen[0]))


def test_that_of_half_precision_is_coarse() -> None:
    kind = ZOO["Llama"]
    model = made(kind).bfloat16()
    with regard.watch(model, effects=True) as seen:
        model(**kind.inputs("none"))
    assert all(known(call) is None for call in seen)


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_of_masks_may_have_no_keys(side: str) -> None:
    kind = ZOO["Llama"]
    model = made(kind)
    with regard.watch(model, effects=True) as seen:
        model(**kind.inputs(side))
    assert all(known(call) is None for call in seen)


def test_it_is_not_that_of_fewer_pairs() -> None:
    kind = ZOO["Llama"]
    model = made(kind)
    knocked = regard.pairs(keys=[0, 3])
    with regard.watch(model, effects=True) as seen, regard.knock_out(model, knocked):
        model(**kind.inputs("none"))
    assert all(known(call) is None for call in seen)


def test_it_is_not_looked_for_without_effects() -> None:
    kind = ZOO["Llama"]
    model = made(kind)
    with regard.watch(model) as seen:
        model(**kind.inputs("none"))
    assert all(known(call) is None for call in seen)


@pytest.mark.parametrize("again", [True, False])
def test_it_is_not_that_of_another_output(again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that runs twice, or of whose output another one is made."""
    own = AttentionInterface._global_mapping["sdpa"]

    def attention(*args: Any, **options: Any) -> tuple[Tensor, None]:
        output, _ = own(*args, **options)
        if again:
            own(*args, **options)
            return output, None
        return output + 0.0, None

    kind = ZOO["Llama"]
    model = made(kind)
    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", attention)
    with regard.watch(model, effects=True) as seen:
        model(**kind.inputs("none"))
    assert seen[0].check.passed
    assert all(known(call) is None for call in seen)
