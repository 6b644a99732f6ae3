"""Effects of watched models against autograd through the same models with eager attention."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.capture import Seen
from regard.versions import Overwritten
from tests.capture.calls import Kernel, inputs
from tests.capture.zoo import ZOO, Kind, made
from tests.checkpointing import checkpointed

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


NOT_COMPARED = {
    "XLNet": "what it returns as its weights is a copy",
    "gpt-oss": "its experts have no float64",
}
SOFTMAX_IN_FLOAT32 = ("BLOOM", "Gemma 2")
# In others, rows that may look at nothing are NaN in float64, or padding is read off the output.
SIDES = {"Gemma 2": ["none"], "BLOOM": ["right"], "CLIP": ["right"]}


def target_of(output: Any, given: dict[str, Tensor]) -> Tensor:
    """Return one number that depends on all tokens but those of padding."""
    hidden = output[0]
    chance = torch.Generator().manual_seed(3)
    weights = torch.randn(hidden.shape, generator=chance, dtype=torch.float64).to(hidden)
    mask = given.get("decoder_attention_mask", given.get("attention_mask"))
    if mask is not None and mask.shape == hidden.shape[:2]:
        weights = weights * mask[..., None]
    return (hidden * weights).sum()


def as_double(given: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.double() if x.is_floating_point() else x for name, x in given.items()}


def watched(model: nn.Module, given: dict[str, Tensor], **options: Any) -> tuple[Seen, Tensor]:
    """Return what was seen of a model whose parameters are frozen, and its target."""
    model.requires_grad_(False)
    with regard.watch(model, effects=True, **options) as seen:
        target = target_of(model(**given), given)
        target.backward()
    return seen, target.detach()


@contextmanager
def exact_softmax() -> Iterator[None]:
    """Let softmax be computed in float64, where models ask for float32, and of finite scores."""
    original = F.softmax

    def softmax(scores: Tensor, dim: int, dtype: torch.dtype | None = None, **more: Any) -> Tensor:
        if scores.dtype != torch.float64:
            return original(scores, dim, dtype=dtype, **more)
        return original(scores.clamp_min(-1e30), dim, **more)

    F.softmax = softmax
    try:
        yield
    finally:
        F.softmax = original


def by_autograd(kind: Kind, side: str) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Return the effects and contributions of an eager model in float64, by part."""
    model, given = made(kind, "eager").double(), as_double(kind.inputs(side))
    with exact_softmax():
        outputs = model(**given, output_attentions=True)
    found: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for part, path in kind.parts.items():
        place: Any = outputs
        for name in path.split("."):
            place = getattr(place, name)
        grads = torch.autograd.grad(
            target_of(outputs, given), place, retain_graph=True, allow_unused=True
        )
        found[part] = []
        for weights, grad in zip(place, grads, strict=True):
            contributions = weights * (torch.zeros_like(weights) if grad is None else grad)
            row_sums = contributions.sum(dim=3, keepdim=True)
            found[part].append(
                ((contributions - weights * row_sums).detach(), contributions.detach())
            )
    return found


def calls_of(seen: Seen, part: str) -> list[Any]:
    where, _, looks = part.partition(" ")
    return [x for x in seen if x.module.startswith(where) and x.kind == (looks or x.kind)]


@pytest.mark.parametrize(
    ("name", "side"),
    [
        (name, side)
        for name in ZOO
        if name not in NOT_COMPARED
        for side in SIDES.get(name, ["left", "right"])
    ],
)
def test_effects_are_those_of_autograd(name: str, side: str) -> None:
    """E and A·(g·v) of every pair, of models that are frozen, in float64."""
    kind = ZOO[name]
    expected = by_autograd(kind, side)
    model, given = made(kind).double(), as_double(kind.inputs(side))
    alone = target_of(model.requires_grad_(False)(**given), given)
    seen, target = watched(model, given)
    assert torch.equal(target, alone)
    within = 1e-6 if name in SOFTMAX_IN_FLOAT32 else 1e-10
    assert sum(map(len, expected.values())) == len(seen)
    for part, layers in expected.items():
        size = max(float(contributions.abs().max()) for _, contributions in layers)
        for call, (effects, contributions) in zip(calls_of(seen, part), layers, strict=True):
            assert (call.effects.dense() - effects).abs().max() <= within * size
            found = call.effects.contributions.dense()
            assert (found - contributions).abs().max() <= within * size
            by_head = call.gradient.by_head()
            assert (by_head - contributions.sum(dim=(0, 2, 3))).abs().max() <= 10 * within * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types(dtype: torch.dtype) -> None:
    kind = ZOO["Llama"]
    expected = by_autograd(kind, "left")[""]
    seen, _ = watched(made(kind).to(dtype), kind.inputs("left"))
    within = 1e-5 if dtype == torch.float32 else 0.1
    for call, (effects, _) in zip(seen, expected, strict=True):
        assert call.effects.dtype == torch.float32
        assert (call.effects.dense() - effects).abs().max() <= within * effects.abs().max()


def test_autocast() -> None:
    kind = ZOO["Llama"]
    expected = by_autograd(kind, "left")[""]
    with torch.autocast("cpu", torch.bfloat16):
        seen, _ = watched(made(kind), kind.inputs("left"))
    for call, (effects, _) in zip(seen, expected, strict=True):
        assert (call.effects.dense() - effects).abs().max() <= 0.1 * effects.abs().max()


class Saved:
    """A tensor that is kept for the backward pass."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class TestHeads:
    def test_of_a_decoder(self) -> None:
        kind = ZOO["Llama"]
        expected = by_autograd(kind, "none")[""]
        seen, _ = watched(made(kind).double(), kind.inputs("none"))
        found = seen.effects.heads()
        assert found.how == "gradient"
        assert found.labels["layers"] == [0, 1]
        rows = torch.stack([contributions.sum(dim=(0, 2, 3)) for _, contributions in expected])
        torch.testing.assert_close(found.effects.double(), rows.double(), rtol=1e-5, atol=1e-5)
        layer, head = found.strongest(1)[0]
        assert rows[layer, head].abs() == rows.abs().max()
        assert "gradient" in repr(found)

    def test_layers_of_an_encoder_and_a_decoder_are_called_by_their_modules(self) -> None:
        kind = ZOO["BART"]
        seen, _ = watched(made(kind), kind.inputs("right"))
        layers = seen.effects.heads().labels["layers"]
        assert layers == [call.module for call in seen]

    def test_calls_of_one_module_are_added_up(self) -> None:
        kind = ZOO["ALBERT"]
        seen, _ = watched(made(kind), kind.inputs("none"))
        (row,) = seen.effects.heads().effects
        rows = [call.gradient.by_head() for call in seen]
        assert len(rows) == 2
        assert torch.equal(row, rows[0] + rows[1])

    def test_what_the_target_does_not_depend_on_has_none(self) -> None:
        kind = ZOO["Llama"]
        model = made(kind).requires_grad_(False)
        with regard.watch(model, effects=True) as seen:
            output = model(**kind.inputs("none"), output_hidden_states=True)
            output.hidden_states[1].square().sum().backward()
        assert bool(seen.effects.heads().effects[0].any())
        assert not bool(seen.effects.heads().effects[1].any())
        with pytest.raises(ValueError, match=r"no gradient has come to call 1 \(layers.1"):
            _ = seen[1].effects


class TestGradients:
    """Parameters that learn, checkpoints, several backward passes, and what is left behind."""

    def test_a_model_that_learns_gets_the_same_gradients(self) -> None:
        kind = ZOO["T5"]
        model, given = made(kind), kind.inputs("left")
        target_of(model(**given), given).backward()
        expected = [x.grad for x in model.parameters()]
        for parameter in model.parameters():
            parameter.grad = None
        with regard.watch(model, effects=True) as seen:
            target_of(model(**given), given).backward()
        for parameter, one in zip(model.parameters(), expected, strict=True):
            assert parameter.grad is one is None or torch.equal(parameter.grad, one)
        frozen, _ = watched(made(kind), given)
        for call, other in zip(seen, frozen, strict=True):
            torch.testing.assert_close(call.gradient.total, other.gradient.total)

    @pytest.mark.parametrize("frozen", [True, False])
    def test_checkpoints(self, frozen: bool) -> None:
        kind = ZOO["Llama"]
        model, given = made(kind).train(), {**kind.inputs("left"), "use_cache": False}
        plain, _ = watched(made(kind), given)
        checkpointed(model, use_reentrant=False)
        model.requires_grad_(not frozen)
        with regard.watch(model, effects=True) as seen:
            target_of(model(**given), given).backward()
        assert len(seen) == len(plain) == 2
        for call, other in zip(seen, plain, strict=True):
            torch.testing.assert_close(call.effects.dense(), other.effects.dense())

    def test_reentrant_checkpoints_have_none(self) -> None:
        layer = nn.TransformerEncoderLayer(12, 2, batch_first=True).eval()
        model = Kernel(lambda x: checkpoint(layer, x, use_reentrant=True))
        model.add_module("layer", layer)
        with regard.watch(model, effects=True) as seen:
            model(torch.randn(2, 5, 12).requires_grad_()).sum().backward()
        with pytest.raises(ValueError, match="it needed no gradient when it ran"):
            _ = seen[0].effects

    def test_several_backward_passes_add_up(self) -> None:
        kind = ZOO["Llama"]
        model, given = made(kind).requires_grad_(False), kind.inputs("none")
        with regard.watch(model, effects=True) as seen:
            output = model(**given)[0]
        for place in (3, 7):
            output[0, place].sum().backward(retain_graph=True)
        with regard.watch(model, effects=True) as both:
            model(**given)[0][0, [3, 7]].sum().backward()
        for call, other in zip(seen, both, strict=True):
            torch.testing.assert_close(call.effects.dense(), other.effects.dense())

    def test_no_graph_is_kept_alive(self) -> None:
        kind = ZOO["Llama"]
        model, given = made(kind), kind.inputs("none")
        saved: list[weakref.ref[Saved]] = []

        def pack(tensor: Tensor) -> Saved:
            packed = Saved(tensor.detach())
            saved.append(weakref.ref(packed))
            return packed

        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.tensor),
            regard.watch(model, effects=True) as seen,
        ):
            target = target_of(model(**given), given)
            target.backward(retain_graph=True)
        assert any(one() is not None for one in saved)
        del target
        gc.collect()
        assert all(one() is None for one in saved)
        assert all(not call.gradient.total.requires_grad for call in seen)
        assert seen[0].effects.dense().isfinite().all()

    def test_an_output_that_is_written_to_in_place(self) -> None:
        """A leaf could not be, and what was written over is not taken for the output."""

        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, value).mul_(2.0)

        model, given = Kernel(attention), inputs()
        with regard.watch(model, effects=True) as seen:
            model(*given).sum().backward()
        assert bool((seen[0].gradient.total == 2.0).all())
        assert seen[0].effects.dense().isfinite().all()
        with pytest.raises(Overwritten, match="output was modified in place after the call"):
            seen.effects.heads()
        with regard.watch(model, effects=True, keep="copies") as seen:
            model(*given).sum().backward()
        output = F.scaled_dot_product_attention(*given)
        found = seen.effects.heads().effects[0].double()
        torch.testing.assert_close(found, (2 * output).sum(dim=(0, 2, 3)), rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("by_hand", [False, True])
    def test_values_that_are_written_to_in_place(self, by_hand: bool) -> None:
        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            if by_hand:
                return (query @ key.mT).softmax(dim=-1) @ value
            return F.scaled_dot_product_attention(query, key, value)

        # With as many queries as keys nothing is copied.
        model, given = Kernel(attention), [torch.randn(2, 3, 5, 4) for _ in range(3)]
        with regard.watch(model, effects=True) as seen:
            model(*given).sum().backward()
        given[2].zero_()
        assert seen[0].matrix.dense().isfinite().all()
        with pytest.raises(Overwritten, match=r"^call 0 .*: value was modified in place"):
            _ = seen[0].effects

    def test_nested(self) -> None:
        kind = ZOO["Llama"]
        model, given = made(kind).requires_grad_(False), kind.inputs("none")
        with regard.watch(model, effects=True) as outer, regard.watch(model, effects=True) as inner:
            target_of(model(**given), given).backward()
        for call, other in zip(outer, inner, strict=True):
            assert torch.equal(call.effects.dense(), other.effects.dense())


class TestKernels:
    """Every way in which calls are caught, against autograd in float64."""

    def held(self, attention: Any, *given: Tensor) -> None:
        """Hold the gradient of a call's output, in whatever layout, against the exact one."""
        model = Kernel(attention)
        with regard.watch(model, effects=True) as seen:
            output = model(*given)
            chance = torch.Generator().manual_seed(5)
            weights = torch.randn(output.shape, generator=chance, dtype=output.dtype)
            (output * weights).sum().backward()
        (call,) = seen
        # Values are moved one at a time: the target changes by what the pair contributes.
        query, key, value = (x.detach().clone() for x in given)
        rows = call.effects.contributions.dense().sum(dim=2)
        moved = value.requires_grad_()
        target = (attention(query, key, moved) * weights).sum()
        (grad,) = torch.autograd.grad(target, moved)
        expected = (grad * moved).sum(dim=-1).detach()
        torch.testing.assert_close(
            rows.sum(dim=1), expected.reshape(rows.shape[0], -1, rows.shape[-1]).sum(dim=1)
        )

    def test_sdpa(self) -> None:
        self.held(F.scaled_dot_product_attention, *inputs())

    @pytest.mark.parametrize("axes", [(), (2, 3)])
    def test_sdpa_with_other_axes(self, axes: tuple[int, ...]) -> None:
        self.held(F.scaled_dot_product_attention, *inputs(batch=axes))

    def test_attend(self) -> None:
        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return regard.attend(query, key, value, pattern=regard.window(before=3))

        self.held(attention, *inputs())

    def test_by_hand(self) -> None:
        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return (query @ key.mT).softmax(dim=-1) @ value

        self.held(attention, *inputs())

    def test_einsum_with_heads_behind(self) -> None:
        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            query, key, value = (x.transpose(1, 2) for x in (query, key, value))
            weights = torch.einsum("bihd,bjhd->bhij", query, key).softmax(dim=-1)
            return torch.einsum("bhij,bjhd->bihd", weights, value)

        self.held(attention, *inputs())

    @pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
    def test_flex(self) -> None:
        from torch.nn.attention.flex_attention import flex_attention

        given = inputs(dtype=torch.float32)
        if torch.cuda.is_available():
            self.held(flex_attention, *given)
            return
        # On the CPU, FlexAttention has no backward pass.
        model = Kernel(flex_attention)
        with regard.watch(model, effects=True) as seen:
            (model(*given) * 2.0).sum().backward()
        assert bool((seen[0].gradient.total == 2.0).all())

    @pytest.mark.parametrize("batch_first", [True, False])
    @pytest.mark.parametrize("weights", [True, False])
    def test_multi_head_attention(self, batch_first: bool, weights: bool) -> None:
        layer = nn.MultiheadAttention(12, 3, batch_first=batch_first).double().eval()
        x = torch.randn(5, 4, 12, dtype=torch.float64)
        with regard.watch(layer, effects=True) as seen:
            layer(x, x, x, need_weights=weights)[0].square().sum().backward()
        (call,) = seen
        output = call.matrix @ call.gradient.value
        turned = output.permute(0, 2, 1, 3) if batch_first else output.permute(2, 0, 1, 3)
        joined = turned.flatten(2).detach().requires_grad_()
        F.linear(joined, layer.out_proj.weight, layer.out_proj.bias).square().sum().backward()
        assert joined.grad is not None
        grad = joined.grad.unflatten(2, (3, 4))
        grad = grad.permute(0, 2, 1, 3) if batch_first else grad.permute(1, 2, 0, 3)
        torch.testing.assert_close(call.gradient.total, grad)


class TestRefusals:
    def test_without_effects(self) -> None:
        kind = ZOO["Llama"]
        model = made(kind)
        with regard.watch(model) as seen:
            model(**kind.inputs("none"))
        with pytest.raises(
            ValueError, match=r"call 0 .* has no effects: only watch\(model, effects=True\)"
        ):
            _ = seen[0].effects
        with pytest.raises(ValueError, match=r"only watch\(model, effects=True\) finds them"):
            seen.effects.heads()

    def test_without_backward(self) -> None:
        kind = ZOO["Llama"]
        model = made(kind)
        with regard.watch(model, effects=True) as seen:
            model(**kind.inputs("none"))
        with pytest.raises(
            ValueError, match=r"no gradient has come to call 0 .*: call target.backward"
        ):
            _ = seen[0].effects
        with pytest.raises(ValueError, match="there are no gradients: call target"):
            seen.effects.heads()

    @pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
    def test_without_gradients(self, off: Any) -> None:
        kind = ZOO["Llama"]
        model = made(kind)
        with (
            off(),
            pytest.raises(RuntimeError, match="effects=True needs gradients"),
            regard.watch(model, effects=True),
        ):
            model(**kind.inputs("none"))
        assert not model._forward_pre_hooks

    def test_generate(self) -> None:
        import transformers

        model = transformers.LlamaForCausalLM(ZOO["Llama"].config).eval()
        with (
            pytest.raises(RuntimeError, match=r"generate\(\) disables gradients"),
            regard.watch(model, effects=True),
        ):
            model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=2, do_sample=False)

    def test_a_part_that_runs_without_gradients(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.MultiheadAttention(12, 3, batch_first=True)
                self.second = nn.MultiheadAttention(12, 3, batch_first=True)

            def forward(self, x: Tensor) -> Tensor:
                with torch.no_grad():
                    x = self.first(x, x, x)[0]
                return self.second(x, x, x)[0]

        model = Model().eval()
        with regard.watch(model, effects=True) as seen:
            model(torch.randn(2, 5, 12)).sum().backward()
        assert seen[1].effects.dense().isfinite().all()
        with pytest.raises(ValueError, match="it needed no gradient when it ran"):
            _ = seen[0].effects

    def test_dropout(self) -> None:
        model = nn.MultiheadAttention(12, 3, dropout=0.5, batch_first=True)
        x = torch.randn(2, 5, 12)
        for weights in (True, False):
            with regard.watch(model, effects=True) as seen:
                model(x, x, x, need_weights=weights)[0].sum().backward()
            with pytest.raises(ValueError, match="dropout changed its output, call"):
                _ = seen[0].effects

    def test_reductions_instead_of_tensors(self) -> None:
        model = nn.MultiheadAttention(12, 3)
        with (
            pytest.raises(ValueError, match='effects=True needs keep="tensors" or "copies"'),
            regard.watch(model, effects=True, keep=[regard.matrix.Entropy()]),
        ):
            pass

    def test_an_output_that_was_scaled(self) -> None:
        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            query, key, value = (x.flatten(end_dim=1) for x in (query, key, value))
            weights = (query @ key.mT).softmax(dim=-1)
            return torch.baddbmm(query[..., :1], weights, value, alpha=0.5)

        model, given = Kernel(attention), inputs()
        with regard.watch(model, effects=True) as seen:
            model(*given).sum().backward()
        with pytest.raises(ValueError, match=r"has scaled it \(alpha\)$"):
            _ = seen[0].effects

    def test_joined_steps(self) -> None:
        import transformers

        model = transformers.LlamaForCausalLM(ZOO["Llama"].config).eval()
        with regard.watch(model, effects=True) as seen:
            first = model(torch.tensor([[3, 4, 5]]), use_cache=True)
            step = model(torch.tensor([[6]]), past_key_values=first.past_key_values)
            step.logits.square().sum().backward()
        assert len(seen) == 4
        # What the prompt's keys and values do to the step's target came through the cache.
        assert all(bool(call.gradient.total.any()) for call in (seen[0], seen[2], seen[3]))
        with pytest.raises(ValueError, match="has no effects"):
            _ = seen.stitched()[0].effects


class ByHand(nn.Module):
    """Attention that is written down, which may do more with its weights."""

    num_heads = 4

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)
        self.gate, self.relative = torch.randn(4, 1, 1), torch.randn(6, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = query @ key.mT / 2
        if scores.requires_grad:
            scores.retain_grad()
        weights = scores.softmax(dim=-1)
        output = getattr(self, self.kind)(weights, value)
        if output.requires_grad:
            output.retain_grad()
        self.scores, self.heads = scores, output
        return self.o(output.transpose(1, 2).flatten(2))

    def plain(self, weights: Tensor, value: Tensor) -> Tensor:
        return weights @ value

    def copied(self, weights: Tensor, value: Tensor) -> Tensor:
        kept = weights.masked_fill(torch.zeros(6, 6, dtype=torch.bool), 0.0).nan_to_num(0.0)
        return F.dropout(kept.double().to(weights).contiguous(), 0.5, training=False) @ value

    def added(self, weights: Tensor, value: Tensor) -> Tensor:
        flat = torch.baddbmm(torch.ones(8, 6, 4), weights.flatten(0, 1), value.flatten(0, 1))
        return flat.unflatten(0, (2, 4))

    def uninitialised(self, weights: Tensor, value: Tensor) -> Tensor:
        start = torch.full((8, 6, 4), torch.nan)
        flat = torch.baddbmm(start, weights.flatten(0, 1), value.flatten(0, 1), beta=0)
        return flat.unflatten(0, (2, 4))

    def gated(self, weights: Tensor, value: Tensor) -> Tensor:
        return weights * self.gate.sigmoid() @ value

    def gated_in_place(self, weights: Tensor, value: Tensor) -> Tensor:
        weights = weights.clone()
        weights *= self.gate.sigmoid()
        return weights @ value

    def with_identity(self, weights: Tensor, value: Tensor) -> Tensor:
        return (weights + torch.eye(6)) @ value

    def top(self, weights: Tensor, value: Tensor) -> Tensor:
        return torch.where(weights >= weights.topk(3).values[..., -1:], weights, 0.0) @ value

    def squared(self, weights: Tensor, value: Tensor) -> Tensor:
        weights = weights.square()
        return weights / weights.sum(dim=-1, keepdim=True) @ value

    def mixed(self, weights: Tensor, value: Tensor) -> Tensor:
        heads = nn.Parameter(torch.ones(4, 4) + torch.eye(4))
        return F.linear(weights.permute(0, 2, 3, 1), heads).permute(0, 3, 1, 2) @ value

    def less(self, weights: Tensor, value: Tensor) -> Tensor:
        other = (value @ value.mT).softmax(dim=-1)
        return (weights - 0.3 * other) @ value

    def relative_values(self, weights: Tensor, value: Tensor) -> Tensor:
        return weights @ value + torch.einsum("bhij,ijd->bhid", weights, self.relative)

    def halves(self, weights: Tensor, value: Tensor) -> Tensor:
        return torch.cat([weights @ value[..., :2], weights @ value[..., 2:]], dim=-1)


def run_by_hand(kind: str) -> tuple[ByHand, Seen]:
    model, x = ByHand(kind).eval(), torch.randn(2, 6, 16)
    with regard.watch(model, effects=True) as seen:
        (model(x).tanh() * torch.randn(2, 6, 16)).sum().backward()
    return model, seen


@pytest.mark.parametrize("kind", ["plain", "copied", "added", "uninitialised"])
def test_effects_of_weights_that_are_the_softmax(kind: str) -> None:
    model, seen = run_by_hand(kind)
    assert model.scores.grad is not None
    torch.testing.assert_close(seen[0].effects.dense(), model.scores.grad, rtol=1e-4, atol=1e-6)
    assert model.heads.grad is not None
    heads = model.heads - 1.0 if kind == "added" else model.heads
    expected = (heads * model.heads.grad).sum(dim=(0, 2, 3)).detach()
    torch.testing.assert_close(seen.effects.heads().effects[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kind", ["gated", "gated_in_place", "with_identity", "top", "squared", "mixed", "less"]
)
def test_effects_of_changed_weights_are_no_gradients_of_scores(kind: str) -> None:
    model, seen = run_by_hand(kind)
    assert not seen[0].has_effects
    rule = r"has no effects: its weights are not the result of one softmax, unchanged$"
    with pytest.raises(ValueError, match=rule):
        _ = seen[0].effects
    # What a head does does not depend on how its weights came about.
    assert model.heads.grad is not None
    expected = (model.heads * model.heads.grad).sum(dim=(0, 2, 3)).detach()
    torch.testing.assert_close(seen.effects.heads().effects[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["relative_values", "halves"])
def test_effects_of_weights_that_are_multiplied_twice_are_refused(kind: str) -> None:
    _, seen = run_by_hand(kind)
    rule = r"has no effects: its weights are multiplied with values more than once$"
    with pytest.raises(ValueError, match=rule):
        _ = seen[0].effects
    with pytest.raises(ValueError, match=rule):
        seen.effects.heads()


@pytest.mark.parametrize("keep", ["tensors", "copies"])
def test_relative_values_of_vits(keep: str) -> None:
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsEncoder

    config = VitsConfig(
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        ffn_dim=32,
        window_size=3,
        layerdrop=0,
        hidden_dropout=0,
        attention_dropout=0,
        activation_dropout=0,
    )
    model: Any = VitsEncoder(config).eval()
    for layer in model.layers:
        nn.init.normal_(layer.attention.emb_rel_v, std=0.5)
    with regard.watch(model, effects=True, keep=keep) as seen:
        model(torch.randn(1, 6, 16), padding_mask=torch.ones(1, 6, 1))[0].sum().backward()
    seen.verify()
    for call in seen:
        with pytest.raises(ValueError, match="multiplied with values more than once"):
            _ = call.effects
    with pytest.raises(ValueError, match="multiplied with values more than once"):
        seen.effects.heads()
