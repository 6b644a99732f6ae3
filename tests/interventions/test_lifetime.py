"""What both promise whatever the model is: nothing left behind, any order, only this thread."""

import itertools
import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.patterns import causal, pairs
from tests.capture.traces import MODELS, Attention, Fault, inputs, left_behind, stack

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

LAYERS = {"ours": "1", "torch": "layers.1.self_attn", "transformers": "layers.1.self_attn"}
KEYS = pairs(keys=[1, 3])


def output(model: nn.Module, given: dict[str, Any]) -> Tensor:
    found = model(**given)
    return found if isinstance(found, Tensor) else found[0]


@pytest.mark.parametrize("name", MODELS)
class TestEveryKind:
    def test_an_empty_set_changes_no_bit(self, name: str) -> None:
        model, given = MODELS[name]()
        before = output(model, given)
        for empty in (pairs(queries=[], keys=[]), pairs(keys=slice(999, None)), ~pairs()):
            with regard.knock_out(model, empty):
                assert torch.equal(output(model, given), before)
        with regard.knock_out(model, KEYS, heads=[]):
            assert torch.equal(output(model, given), before)

    @pytest.mark.parametrize("fault", [None, "model", "head"])
    def test_nothing_is_left_behind(self, name: str, fault: str | None) -> None:
        model, given = MODELS[name]()
        before, expected = left_behind(model), output(model, given)
        head = 99 if fault == "head" else 1
        kind = {None: (), "model": Fault, "head": ValueError}[fault]
        for first in ("ablate", "knock_out"):
            with ExitStack() as both:
                if fault is not None:
                    both.enter_context(pytest.raises(kind))
                if first == "ablate":
                    both.enter_context(regard.ablate(model, [(LAYERS[name], head)]))
                    both.enter_context(regard.knock_out(model, KEYS))
                else:
                    both.enter_context(regard.knock_out(model, KEYS, heads=[head]))
                    both.enter_context(regard.ablate(model, [(LAYERS[name], 0)]))
                output(model, given)
                if fault == "model":
                    raise Fault
            assert left_behind(model) == before
            assert torch.equal(output(model, given), expected)

    def test_with_watch_in_any_order(self, name: str) -> None:
        model, given = MODELS[name]()
        layer = LAYERS[name]
        with regard.watch(model) as plain:
            output(model, given)
        found: list[Tensor] = []
        for order in itertools.permutations(("ablate", "knock_out", "watch")):
            with ExitStack() as entered:
                for which in order:
                    if which == "ablate":
                        entered.enter_context(regard.ablate(model, [(layer, 1)]))
                    elif which == "knock_out":
                        entered.enter_context(
                            regard.knock_out(model, KEYS, layers=[layer], heads=[0, 1])
                        )
                    else:
                        seen = entered.enter_context(regard.watch(model))
                found.append(output(model, given))
            seen.verify()
            weights, before = seen[layer].matrix.dense(), plain[layer].matrix.dense()
            assert not weights[:, :2, :, [1, 3]].any()
            left = before[:, :2].clone()
            left[..., [1, 3]] = 0.0
            left = left / left.sum(dim=-1, keepdim=True).clamp(min=1e-30)
            torch.testing.assert_close(weights[:, :2], left, rtol=0, atol=1e-5)
            torch.testing.assert_close(weights[:, 2:], before[:, 2:], rtol=0, atol=1e-6)
        for one in found[1:]:
            torch.testing.assert_close(one, found[0], rtol=0, atol=1e-6)

    def test_two_are_as_one(self, name: str) -> None:
        model, given = MODELS[name]()
        layer = LAYERS[name]
        with regard.knock_out(model, pairs(keys=[1, 3, 4]), layers=[layer]):
            expected = output(model, given)
        with (
            regard.knock_out(model, pairs(keys=[1, 4]), layers=[layer]),
            regard.knock_out(model, pairs(keys=[3, 4]), layers=[layer]),
        ):
            found = output(model, given)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        with regard.ablate(model, [(layer, 0), (layer, 1)]):
            expected = output(model, given)
        with regard.ablate(model, [(layer, 1)]), regard.ablate(model, [(layer, 0)]):
            torch.testing.assert_close(output(model, given), expected, rtol=0, atol=1e-6)

    def test_other_threads_are_left_alone(self, name: str) -> None:
        model, given = MODELS[name]()
        expected, found = output(model, given), []
        with regard.knock_out(model, KEYS), regard.ablate(model, [(LAYERS[name], 0)]):
            thread = threading.Thread(target=lambda: found.append(output(model, given)))
            thread.start()
            thread.join()
            assert not torch.equal(output(model, given), expected)
        assert torch.equal(found[0], expected)


def by_the_book(model: nn.Sequential, x: Tensor) -> Tensor:
    """Run two layers of attention, of which the second has two keys masked and a head zeroed."""
    for number, layer in enumerate(model):
        assert isinstance(layer, Attention)
        parts = layer.mixed(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = query @ key.mT / 2
        if number == 1:
            scores = scores.masked_fill(torch.tensor([0, 1, 0, 1, 0, 0]).bool(), -torch.inf)
        heads = scores.softmax(dim=-1) @ value
        if number == 1:
            heads = heads * torch.tensor([1.0, 0.0])[:, None, None]
        x = x + heads.transpose(1, 2).flatten(2)
    return x


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Sequential, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.inner:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("way", ["plain", "checkpoint", "reentrant checkpoint"])
def test_gradients(way: str) -> None:
    model = stack()
    x = inputs().requires_grad_()
    by_the_book(model, x).square().sum().backward()
    expected = [x.grad, *(parameter.grad for parameter in model.parameters())]
    model.zero_grad()
    x.grad = None
    whole = model if way == "plain" else Checkpointed(model, way.startswith("reentrant"))
    prefix = "" if way == "plain" else "inner."
    with (
        regard.knock_out(whole, KEYS, layers=[f"{prefix}1"]),
        regard.ablate(whole, [(f"{prefix}1", 1)]),
    ):
        whole(x).square().sum().backward()
    for found, other in zip([x.grad, *(p.grad for p in model.parameters())], expected, strict=True):
        torch.testing.assert_close(found, other, rtol=1e-5, atol=1e-5)


def test_a_backward_pass_that_would_be_of_another_model_fails() -> None:
    model = Checkpointed(stack(), reentrant=False)
    for way in (regard.knock_out(model, KEYS), regard.ablate(model, [(0, 1)])):
        with way:
            loss = model(inputs().requires_grad_()).sum()
        with pytest.raises(RuntimeError, match=r"different number of tensors|different metadata"):
            loss.backward()


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_reentrant_checkpoint_that_would_be_computed_unaltered_later_is_refused(
    backwards: int,
) -> None:
    model = Checkpointed(stack(), reentrant=True)

    def run(altered: AbstractContextManager[None]) -> None:
        with altered:
            losses = [model(inputs().requires_grad_()).sum() for _ in range(1 + backwards)]
            for loss in losses[:backwards]:
                loss.backward()

    for way in (regard.knock_out(model, KEYS), regard.ablate(model, [("inner.0", 1)])):
        with pytest.raises(RuntimeError, match=r"inner\.0 is checkpointed.* inside the block"):
            run(way)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_checkpoint_without_a_backward_pass_is_altered() -> None:
    whole, checkpointed = stack(), Checkpointed(stack(), reentrant=True)
    with regard.knock_out(whole, KEYS), torch.no_grad():
        expected = whole(inputs())
    with regard.knock_out(checkpointed, KEYS), torch.no_grad():
        found = checkpointed(inputs().requires_grad_())
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    model, x = stack().to(dtype), inputs().to(dtype)
    with regard.knock_out(model, KEYS, layers=[1]), regard.ablate(model, [(1, 1)]):
        found = model(x)
    assert found.dtype == dtype
    expected = by_the_book(stack().double(), inputs().double()) if dtype == torch.float64 else None
    if expected is None:
        expected = by_the_book(stack().to(dtype), x).double()
    error = 1e-12 if dtype == torch.float64 else 0.05
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=error)


def test_autocast() -> None:
    model = stack()
    with torch.autocast("cpu", torch.bfloat16):
        with regard.knock_out(model, KEYS, layers=[1]), regard.ablate(model, [(1, 1)]):
            found = model(inputs())
        expected = by_the_book(model, inputs())
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=0.05)


def test_who_may_look_at_nothing_gets_zeros() -> None:
    model = stack(1)
    with regard.knock_out(model, causal()):
        found = model(inputs())
    # The last one looks at all keys, and nobody further on.
    assert torch.equal(found[:, -1], inputs()[:, -1])
    assert not torch.equal(found[:, 0], inputs()[:, 0])


class ByHand(nn.Module):
    """Attention written out, with weights returned too."""

    num_heads = 2

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mixed = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self.mixed(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        scores = (query @ key.mT / 2).masked_fill(torch.ones(6, 6).triu(1).bool(), -3e38)
        weights = F.softmax(scores, dim=-1)
        return torch.einsum("bhij,bhjd->bihd", weights, value).flatten(2), weights


class TestByHand:
    def test_knocked_out(self) -> None:
        model = ByHand()
        _, before = model(inputs())
        with regard.knock_out(model, KEYS, heads=[1]):
            output, weights = model(inputs())
        expected = before.clone()
        expected[:, 1, :, [1, 3]] = 0.0
        expected = expected / expected.sum(dim=-1, keepdim=True)
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)
        _, _, value = model.mixed(inputs()).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        product = (expected @ value).transpose(1, 2).flatten(2)
        torch.testing.assert_close(output, product, rtol=0, atol=1e-6)

    def test_who_may_look_at_nothing_gets_zeros_and_finite_gradients(self) -> None:
        model = ByHand()
        with regard.knock_out(model, pairs(keys=[0, 1])):
            output, weights = model(inputs())
            output.square().sum().backward()
        assert not weights[:, :, :2].any()
        assert weights[:, :, 2:].sum(dim=-1).allclose(torch.ones(()))
        assert model.mixed.weight.grad is not None
        assert model.mixed.weight.grad.isfinite().all()

    @pytest.mark.parametrize("by", ["zero", "mean"])
    def test_ablated(self, by: str) -> None:
        model = ByHand()
        expected = model(inputs())[0].unflatten(2, (2, 4)).clone()
        expected[:, :, 1] = 0.0 if by == "zero" else expected[:, :, 1].mean(dim=1, keepdim=True)
        with regard.ablate(model, [("", 1)], by=by), regard.watch(model) as seen:
            output, _ = model(inputs())
        seen.verify()
        torch.testing.assert_close(output, expected.flatten(2), rtol=0, atol=1e-6)

    def test_weights_of_torchs_own_layer(self) -> None:
        torch.manual_seed(0)
        layer = nn.MultiheadAttention(8, 2, batch_first=True)
        mask = torch.zeros(6, 6)
        mask[:, [1, 3]] = -torch.inf
        x = inputs()
        expected = layer(x, x, x, attn_mask=mask)
        with regard.knock_out(layer, KEYS):
            found = layer(x, x, x)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
