"""Weights times the length of what is looked at, against the definition in float64."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import accelerate
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
)

import regard
from materials import minilm
from regard.matrix import Distance, EffectiveKeys, Entropy, NormMatrix, Pool
from regard.versions import Overwritten

TOKENS = torch.arange(60).view(2, 30) % 50


def llama() -> tuple[Any, Callable[[Any], Any]]:
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaModel(config), lambda model: [
        (one.self_attn.v_proj, slice(0, 16), one.self_attn.o_proj.weight.T) for one in model.layers
    ]


def gpt2() -> tuple[Any, Callable[[Any], Any]]:
    config = GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4)
    return GPT2Model(config), lambda model: [
        (one.attn.c_attn, slice(64, 96), one.attn.c_proj.weight) for one in model.h
    ]


def bert() -> tuple[Any, Callable[[Any], Any]]:
    config = BertConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    return BertModel(config), lambda model: [
        (one.attention.self.value, slice(0, 32), one.attention.output.dense.weight.T)
        for one in model.encoder.layer
    ]


@contextmanager
def outputs_of(modules: list[nn.Module]) -> Generator[list[Tensor]]:
    """Collect what modules return."""
    found: list[Tensor] = []

    def collect(module: nn.Module, given: Any, output: Tensor) -> None:
        found.append(output)

    hooks = [module.register_forward_hook(collect) for module in modules]
    yield found
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("make", [llama, gpt2, bert])
def test_norms_are_those_of_the_definition(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model, parts_of = make()
    model = model.double().eval()
    parts = parts_of(model)
    with torch.no_grad():
        with regard.watch(model, values=True) as seen:
            model(TOKENS)
        model.set_attn_implementation("eager")
        with outputs_of([layer for layer, _, _ in parts]) as outputs:
            weights = model(TOKENS, output_attentions=True).attentions
        for call, output, weight, (_, columns, projection) in zip(
            seen, outputs, weights, parts, strict=True
        ):
            value = output[..., columns].unflatten(-1, (-1, 8)).transpose(1, 2)
            value = value.repeat_interleave(4 // value.shape[1], dim=1)
            parts_of_heads = projection.view(4, 8, 32)
            brought = (value[:, :, :, None] @ parts_of_heads[None, :, None])[:, :, :, 0]
            norms = brought.norm(dim=-1)[:, :, None]
            torch.testing.assert_close(call.norms.dense(), call.matrix.dense() * norms)
            # Its softmax is in float32.
            torch.testing.assert_close(call.norms.dense(), weight * norms, atol=1e-8, rtol=1e-6)


def test_summaries_are_those_of_the_dense_matrix() -> None:
    query, key, value = torch.randn(3, 2, 4, 200, 16, dtype=torch.float64)
    weights = regard.AttentionMatrix(query, key, pattern=regard.causal())
    norms = NormMatrix(weights, value, torch.randn(4, 16, 32, dtype=torch.float64))
    dense = norms.dense()
    brought = dense / weights.dense()
    assert torch.allclose(brought[:, :, -1, :100], brought[:, :, 150, :100])
    torch.testing.assert_close(norms.top(3).weights[..., 0], dense.amax(dim=3))
    torch.testing.assert_close(norms.received().total, dense.sum(dim=2))
    torch.testing.assert_close(
        norms.summarize(Pool(10, "max"))[0].cells,
        dense.unflatten(3, (10, 20)).unflatten(2, (10, 20)).amax(dim=(3, 5)),
    )
    torch.testing.assert_close(norms[1, 2, 50:60, 10:20].dense(), dense[1, 2, 50:60, 10:20])
    assert torch.equal(norms[1].weights.dense(), weights[1].dense())
    found = norms.edges(threshold=float(dense.max()) * 0.9)
    assert len(found.weights) == int((dense >= dense.max() * 0.9).sum())


@pytest.mark.parametrize("reduction", [Entropy(), EffectiveKeys(), Distance()])
def test_reductions_of_weights_are_refused(reduction: Any) -> None:
    x = torch.randn(1, 2, 5, 4)
    norms = NormMatrix(regard.AttentionMatrix(x, x), x, torch.randn(2, 4, 8))
    with pytest.raises(ValueError, match=f"{type(reduction).__name__} needs weights"):
        norms.summarize(reduction)


def test_arguments_must_fit() -> None:
    x, projection = torch.randn(1, 2, 5, 4), torch.randn(2, 4, 8)
    weights = regard.AttentionMatrix(x, x)
    with pytest.raises(ValueError, match="weights must be a whole matrix"):
        NormMatrix(weights[:, :1], x, projection)
    with pytest.raises(ValueError, match=r"value must have the shape \[1, key_heads, 5, value_dim"):
        NormMatrix(weights, x[:, :, :4], projection)
    with pytest.raises(ValueError, match="value must have a divisor of 2 heads, got 3"):
        NormMatrix(weights, torch.randn(1, 3, 5, 4), projection)
    with pytest.raises(ValueError, match=r"projection must have the shape \[2, 4, model_dim\]"):
        NormMatrix(weights, x, projection[:1])


class Head(nn.Module):
    """Attention whose output goes where `after` sends it."""

    def __init__(self, after: Callable[["Head", Tensor], Tensor]) -> None:
        super().__init__()
        self.after, self.project, self.beside = after, nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
        output = F.scaled_dot_product_attention(heads, heads, heads)
        return self.after(self, output.transpose(1, 2).flatten(2))


def projected(head: Head, x: Tensor) -> Tensor:
    return head.project(x)


def with_adapter(head: Head, x: Tensor) -> Tensor:
    return head.project(x) + head.beside(x)


def gated(head: Head, x: Tensor) -> Tensor:
    return head.project(x * x.sigmoid())


def unchanged(head: Head, x: Tensor) -> Tensor:
    return x


def with_matrices(head: Head, x: Tensor) -> Tensor:
    return x @ head.beside.weight[:3].T @ head.beside.weight[:3] + head.project(x)


def with_dropped_adapter(head: Head, x: Tensor) -> Tensor:
    return head.project(x) + head.beside(F.dropout(x, 0.5))


def with_adapter_by_keyword(head: Head, x: Tensor) -> Tensor:
    return head.project(x) + head.beside(input=x)


def gated_by_itself(head: Head, x: Tensor) -> Tensor:
    return head.project(x * head.beside(x).sigmoid())


def hooked(head: Head, x: Tensor) -> Tensor:
    def add(module: nn.Module, given: tuple[Tensor], output: Tensor) -> Tensor:
        return output + given[0] @ head.beside.weight

    hook = head.project.register_forward_hook(add)
    found = head.project(x)
    hook.remove()
    return found


class Scaled(nn.Module):
    """A linear layer whose result is scaled, as by IA³ of PEFT."""

    def __init__(self, base_layer: nn.Linear, merged: bool = False) -> None:
        super().__init__()
        self.base_layer, self.merged = base_layer, merged

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) * (1.0 if self.merged else 2.0)


def scaled(head: Head, x: Tensor) -> Tensor:
    return head.scaled(x)


@pytest.mark.parametrize("merged", [False, True])
def test_a_result_that_an_adapter_scales_is_refused(merged: bool) -> None:
    head = Head(scaled)
    head.scaled = Scaled(head.project, merged)
    with torch.no_grad(), regard.watch(head, values=True) as seen:
        head(torch.randn(2, 5, 16))
    if merged:
        assert seen[0].norms.shape == (2, 2, 5, 5)
    else:
        with pytest.raises(ValueError, match="did not go to one linear layer"):
            seen[0].norms  # noqa: B018


@pytest.mark.parametrize(
    "after",
    [
        with_adapter,
        with_matrices,
        with_dropped_adapter,
        with_adapter_by_keyword,
        gated,
        gated_by_itself,
        hooked,
        unchanged,
    ],
)
def test_a_projection_that_is_not_one_is_refused(after: Callable[[Head, Tensor], Tensor]) -> None:
    head = Head(after)
    with torch.no_grad(), regard.watch(head, values=True) as seen:
        head(torch.randn(2, 5, 16))
    with pytest.raises(ValueError, match="did not go to one linear layer"):
        seen[0].norms  # noqa: B018


def copied(head: Head, x: Tensor) -> Tensor:
    x = F.dropout(x.clone().flatten(0, 1), 0.5, training=False).double().float()
    return head.project(input=x).unflatten(0, (2, 5))


def test_a_copy_of_the_output_is_the_output() -> None:
    head = Head(copied)
    with torch.no_grad(), regard.watch(head, values=True) as seen:
        head(torch.randn(2, 5, 16))
    assert seen[0].norms.shape == (2, 2, 5, 5)


def test_two_watchers_find_the_same_projection() -> None:
    head = Head(projected)
    with (
        torch.no_grad(),
        regard.watch(head, values=True) as seen,
        regard.watch(head, values=True) as again,
    ):
        head(torch.randn(2, 5, 16))
    assert torch.equal(seen[0].norms.dense(), again[0].norms.dense())


def test_a_projection_that_is_loaded_when_it_runs_is_refused() -> None:
    head = Head(projected)
    accelerate.cpu_offload(head, execution_device=torch.device("cpu"))
    with torch.no_grad(), regard.watch(head, values=True) as seen:
        head(torch.randn(2, 5, 16))
    with pytest.raises(ValueError, match="did not go to one linear layer"):
        seen[0].norms  # noqa: B018


def test_norms_are_as_exact_under_autocast() -> None:
    x, projection = torch.randn(1, 2, 5, 4), torch.randn(2, 4, 8)
    weights = regard.AttentionMatrix(x, x)
    with torch.autocast("cpu", torch.bfloat16):
        found = NormMatrix(weights, x, projection).dense()
    torch.testing.assert_close(found, NormMatrix(weights, x, projection).dense())


def test_the_projection_of_torch_layers_is_found() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, batch_first=True).double().eval()
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    with torch.no_grad(), regard.watch(layer, values=True) as seen:
        layer(x, x, x, need_weights=False)
        _, weights = layer(x, x, x, average_attn_weights=False)
        value = F.linear(x, layer.in_proj_weight[32:]).unflatten(-1, (2, 8))
        brought = torch.einsum("bkhd,hdm->bhkm", value, layer.out_proj.weight.T.view(2, 8, 16))
    expected = weights * brought.norm(dim=-1)[:, :, None]
    torch.testing.assert_close(seen[0].norms.dense(), expected)


def test_a_trained_projection_is_refused() -> None:
    head = Head(projected)
    with regard.watch(head, values=True) as seen:
        head(torch.randn(2, 5, 16)).sum().backward()
    torch.optim.SGD(head.parameters(), lr=0.1).step()
    with pytest.raises(Overwritten, match="the weight of project was modified in place"):
        seen[0].norms  # noqa: B018
    assert not head.project._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]


def test_norms_need_values() -> None:
    head = Head(projected)
    with torch.no_grad(), regard.watch(head) as seen:
        head(torch.randn(2, 5, 16))
    with pytest.raises(ValueError, match=r"only watch\(model, values=True\) keeps them"):
        seen[0].norms  # noqa: B018


@pytest.mark.slow
@pytest.mark.usefixtures("quiet_transformers")
def test_special_tokens_get_weight_and_bring_little() -> None:
    model = AutoModel.from_pretrained(minilm()).eval()
    tokens = AutoTokenizer.from_pretrained(minilm())(
        "The old captain stood at the rail and watched the whales until the sun went down.",
        return_tensors="pt",
    )
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        model(**tokens)
    shares: list[list[float]] = []
    for call in seen:
        both = [matrix.received().total[0].sum(dim=0) for matrix in (call.matrix, call.norms)]
        shares.append([float((one[0] + one[-1]) / one.sum()) for one in both])
    by_weight, by_norm = torch.tensor(shares).mean(dim=0).tolist()
    print(f"[CLS] and [SEP]: {by_weight:.3f} by weight, {by_norm:.3f} by norm")
    assert by_norm <= by_weight / 2
