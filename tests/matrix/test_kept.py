"""What a matrix keeps of its call, wherever it is made: detached, copied where it must be."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard import AttentionMatrix, causal
from regard.attention.call import Attention
from regard.calls.call import AttentionCall
from regard.calls.check import EMPTY
from regard.calls.options import Options
from regard.matrix.scores import Scores
from regard.positions import from_tensor, softcap
from regard.positions.bias import compose
from regard.positions.from_tensor import FromTensor
from regard.vllm.captured import Captured
from regard.vllm.layer import WatchedLayer
from tests.capture.calls import Kernel

HEADS, LENGTH, DIM = 2, 6, 8


def made(*, learned: bool = False, dtype: torch.dtype = torch.float32) -> Attention:
    """Return a call with all that there is: a bias of two parts, sinks and a log-sum-exp."""
    chance = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 1, HEADS, LENGTH, DIM, generator=chance).to(dtype)
    numbers = torch.randn(1, HEADS, LENGTH, LENGTH, generator=chance).to(dtype)
    sinks, lse = torch.randn(HEADS, generator=chance), torch.zeros(1, HEADS, LENGTH)
    for tensor in (query, key, value, numbers, sinks, lse):
        tensor.requires_grad_(learned)
    return Attention(
        query=query,
        key=key,
        value=value,
        pattern=causal(),
        bias=compose(softcap(5.0), from_tensor(numbers)),
        scale=0.5,
        sinks=sinks,
        positions=range(LENGTH),
        lse=lse,
    )


def tensors(call: Attention) -> dict[str, Tensor]:
    assert call.bias is not None
    named = {"query": call.query, "key": call.key, "bias": call.bias.tensors[0]}
    named |= {"value": call.value, "sinks": call.sinks, "lse": call.lse}
    return {name: x for name, x in named.items() if isinstance(x, Tensor)}


def test_all_is_detached_and_what_is_small_or_written_to_is_copied() -> None:
    call = made(learned=True)
    given, found = tensors(call), tensors(call.kept())
    assert list(found) == list(given)
    for name, tensor in found.items():
        assert not tensor.requires_grad
        assert torch.equal(tensor, given[name])
        is_copy = tensor.data_ptr() != given[name].data_ptr()
        assert is_copy is (name in ("sinks", "lse")), name


def test_inference_tensors_are_copied() -> None:
    with torch.inference_mode():
        call = made()
        found = tensors(call.kept())
    for name, tensor in tensors(call).items():
        assert tensor.is_inference()
        assert not found[name].is_inference()
        assert torch.equal(found[name], tensor)


def test_a_cache_is_copied() -> None:
    call = made()
    for keys, is_copy in ((LENGTH, False), (LENGTH - 1, True)):
        assert isinstance(call.key, Tensor)
        step = replace(call, key=call.key[:, :, :keys], value=None)
        assert isinstance(step.key, Tensor)
        found = step.kept(in_cache=True).key
        assert isinstance(found, Tensor)
        assert (found.data_ptr() != step.key.data_ptr()) is is_copy


def of_matrix(call: Attention) -> Scores:
    query, key, _ = call.tensors
    matrix = AttentionMatrix(query, key, pattern=call.pattern, bias=call.bias, sinks=call.sinks)
    return scores_of(AttentionCall.of(matrix, "0", check=EMPTY))


def of_watch(call: Attention) -> Scores:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return regard.attend(query, key, value, pattern=call.pattern, bias=call.bias)

    model = Kernel(attention)
    with regard.watch(model, check=False) as seen:
        model(*call.tensors)
    return scores_of(seen[0])


def of_engine(call: Attention) -> Scores:
    query, key, value = (tensor[0].transpose(0, 1) for tensor in call.tensors)
    nothing = call.tensors[0][:, :, :0]
    attention = replace(call, query=nothing, key=nothing, value=None, lse=None, positions=range(0))
    layer = WatchedLayer(None, 16, AttentionCall(module="0", kind="self"), attention)
    captured = Captured(layer, Options(lambda name, module: True, values=True))
    captured.add(query, key, value, value, [0])
    return captured.joined()[0]


def scores_of(call: AttentionCall) -> Scores:
    assert isinstance(call.source, Scores)
    return call.source


SITES: list[Callable[[Attention], Scores]] = [of_matrix, of_watch, of_engine]


@pytest.mark.parametrize("site", SITES)
def test_every_matrix_is_detached(site: Callable[[Attention], Scores]) -> None:
    call = made(learned=True)
    source = site(call)
    found = tensors(source.call)
    assert {"query", "bias"} <= set(found)
    for name, tensor in found.items():
        assert not tensor.requires_grad, name
    if source.call.sinks is not None and call.sinks is not None:
        assert source.call.sinks.data_ptr() != call.sinks.data_ptr()


@pytest.mark.parametrize("site", SITES)
def test_the_lowest_number_of_a_narrow_bias_masks(site: Callable[[Attention], Scores]) -> None:
    call = made(dtype=torch.float16)
    values = torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.float16)
    values[..., 2] = torch.finfo(torch.float16).min
    source = site(replace(call, bias=from_tensor(values)))
    assert isinstance(source.call.bias, FromTensor)
    assert bool((source.call.bias.values[..., 2] == -torch.inf).all())
    assert not bool(source.call.bias.values[..., 3].any())
    # The user's own tensor stays as it is.
    assert bool(values.isfinite().all())


def test_a_stitched_text_has_a_log_sum_exp_of_its_own() -> None:
    def attention(query: Tensor, key: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(query, key, key, is_causal=causal)

    model = Kernel(attention)
    x = torch.randn(1, HEADS, LENGTH, DIM, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    with regard.watch(model, effects=True) as seen:
        model(x[:, :, :5], x[:, :, :5], True)
        model(x[:, :, 5:], x, False)
    assert scores_of(seen[0]).call.lse is not None
    found = seen.stitched()[0].matrix.dense().double()
    whole = x.detach().double()
    scores = (whole @ whole.mT / DIM**0.5).masked_fill(
        torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf
    )
    torch.testing.assert_close(found, scores.softmax(dim=-1), rtol=0, atol=1e-6)
