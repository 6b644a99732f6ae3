"""What is kept of each call: tensors, copies, reductions, values."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.matrix import Entropy, Pool
from tests.attention.cases import DEVICES
from tests.capture.calls import Kernel
from tests.capture.models import DIM, HEADS, WIDTH, Attention, inputs, random, same, weights
from tests.capture.zoo import ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "nothing_registered")


class Fused(nn.Module):
    """Attention whose queries, keys and values lie in one piece of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mixed(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


class TestKeep:
    @pytest.mark.parametrize("keep", ["tensors", "copies"])
    def test_references_or_copies(self, keep: str) -> None:
        attention = Attention()
        with regard.watch(attention, keep=keep) as seen:
            attention(inputs())
        (call,) = seen
        query, key, _ = attention.given
        assert query.requires_grad
        for found, given in ((call.query, query), (call.key, key)):
            assert torch.equal(found, given)
            assert (found.data_ptr() == given.data_ptr()) == (keep == "tensors")
            assert not found.requires_grad
        same(call.matrix.dense(), weights(query.detach(), key.detach()))

    def test_views_of_larger_memory_are_copied(self) -> None:
        fused = Fused()
        with regard.watch(fused) as seen:
            fused(inputs(7))
        (call,) = seen
        kept = [call.query.untyped_storage(), call.key.untyped_storage()]
        one = 3 * HEADS * 7 * DIM * torch.float32.itemsize
        assert len({storage.data_ptr() for storage in kept}) == 2
        assert sum(storage.nbytes() for storage in kept) == 2 * one

    @pytest.mark.parametrize("name", ["Llama", "gpt-oss", "T5", "BLOOM"])
    def test_reductions(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind)
        reductions = [Entropy(), Pool(8)]
        with torch.no_grad():
            with regard.watch(model) as kept:
                model(**kind.inputs("left"))
            with regard.watch(model, keep=reductions) as reduced:
                model(**kind.inputs("left"))
        assert len(kept) == len(reduced) > 1
        for call, other in zip(kept, reduced, strict=True):
            assert (call.module, call.check.passed) == (other.module, other.check.passed)
            assert call.results == ()
            entropy, pool = other.results
            expected_entropy, expected_pool = call.matrix.summarize(*reductions)
            same(entropy.nats, expected_entropy.nats)
            same(pool.cells, expected_pool.cells)

    def test_a_single_reduction(self) -> None:
        attention = Attention()
        with regard.watch(attention, keep=Entropy()) as seen:
            attention(inputs())
        (found,) = seen[0].results
        query, key, _ = attention.given
        a = weights(query.detach(), key.detach())
        same(found.nats, -(a * a.log()).sum(dim=-1))

    @pytest.mark.parametrize("keep", ["tensors", [Entropy()]])
    def test_reductions_let_tensors_go(self, keep: Any) -> None:
        memory: list[weakref.ref[np.ndarray]] = []

        def attend(x: Tensor) -> Tensor:
            # A tensor keeps the array that it was made of for as long as its memory is in use.
            arrays = [x.numpy().copy() for _ in range(2)]
            memory.extend(weakref.ref(array) for array in arrays)
            query, key = (torch.from_numpy(array) for array in arrays)
            return F.scaled_dot_product_attention(query, key, x)

        kernel = Kernel(attend)
        with regard.watch(kernel, keep=keep) as seen:
            kernel(random(1, 2, 6, 4))
            gc.collect()
            alive = [one() is not None for one in memory]
        assert alive == [keep == "tensors"] * 2
        assert len(seen) == 1

    @pytest.mark.parametrize("part", ["matrix", "query", "key"])
    def test_what_was_let_go_is_asked_for(self, part: str) -> None:
        attention = Attention()
        with regard.watch(attention, keep=[Entropy()]) as seen:
            attention(inputs())
        rule = (
            r"^call 0 \(the model\) has no queries and keys: watch the model with "
            r'keep="tensors", or use its results$'
        )
        with pytest.raises(ValueError, match=rule):
            getattr(seen[0], part)

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        ("keep", "kind", "rule"),
        [
            ("tensor", ValueError, r'"tensors", "copies" or a list of reductions, got \'tensor\''),
            (3, TypeError, r"a list of reductions such as Entropy\(\), got 3$"),
            (None, TypeError, r"a list of reductions such as Entropy\(\), got None$"),
            ([Entropy(), "tensors"], TypeError, r"such as Entropy\(\), got 'tensors'$"),
            ([Entropy], TypeError, r"such as Entropy\(\), got <class"),
            (Entropy, TypeError, r"such as Entropy\(\), got <class"),
        ],
    )
    def test_refusals(self, keep: Any, kind: type[Exception], rule: str) -> None:
        with pytest.raises(kind, match=rule), regard.watch(Attention(), keep=keep):
            pytest.fail("the block was entered")

    @pytest.mark.parametrize("device", DEVICES)
    def test_offload(self, device: str) -> None:
        kind = ZOO["gpt-oss"]
        model = made(kind).to(device)
        given = {name: value.to(device) for name, value in kind.inputs("left").items()}
        with torch.no_grad():
            with regard.watch(model) as there:
                model(**given)
            with regard.watch(model, offload="cpu") as here:
                model(**given)
        for call, other in zip(there, here, strict=True):
            assert other.query.device.type == other.key.device.type == "cpu"
            assert other.check.passed
            same(other.matrix.dense(), call.matrix.dense().cpu())

    def test_offload_to_another_device(self) -> None:
        attention = Attention()
        with regard.watch(attention, offload="meta") as seen:
            attention(inputs())
        (call,) = seen
        assert call.query.device.type == call.key.device.type == "meta"
        assert call.check.passed


def test_values_are_kept_if_asked_for() -> None:
    model = nn.TransformerEncoderLayer(WIDTH, nhead=HEADS, batch_first=True).eval()
    tokens = torch.randn(2, 7, WIDTH)
    with regard.watch(model, values=True) as seen:
        model(tokens)
    call = seen[0]
    assert call.value.shape == call.key.shape
    weight, bias = model.self_attn.in_proj_weight[-WIDTH:], model.self_attn.in_proj_bias[-WIDTH:]
    expected = F.linear(tokens, weight, bias).unflatten(2, (HEADS, -1)).transpose(1, 2)
    assert torch.allclose(call.value, expected, atol=1e-6)


def test_values_that_were_not_kept() -> None:
    model = nn.TransformerEncoderLayer(WIDTH, nhead=HEADS, batch_first=True).eval()
    with regard.watch(model) as seen:
        model(torch.randn(2, 7, WIDTH))
    with pytest.raises(ValueError, match=r"only watch\(model, values=True\) keeps them"):
        _ = seen[0].value
