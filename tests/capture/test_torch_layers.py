"""What `watch` sees of nn.MultiheadAttention, and of what torch makes of it."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.capture import Seen
from tests.capture.calls import (
    BATCH,
    HEADS,
    KEPT,
    KEYS,
    MODEL_DIM,
    QUERIES,
    Kernel,
    layers,
    numbers,
    scattered,
    tokens,
    watched,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def own_weights(model: nn.Module, *args: Any, **options: Any) -> list[Tensor]:
    """Return the weights that each `nn.MultiheadAttention` of a model admits to, in order."""
    found: list[Tensor] = []

    def ask(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        with_weights = {**options, "need_weights": True, "average_attn_weights": False}
        weights = nn.MultiheadAttention.forward(module, *args, **with_weights)[1]
        found.append(weights if weights.dim() == 4 else weights[None])

    hooks = [
        module.register_forward_pre_hook(ask, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention)
    ]
    model(*args, **options)
    for hook in hooks:
        hook.remove()
    return found


def assert_own_weights(seen: Seen, expected: Sequence[Tensor]) -> None:
    """Assert that calls, all in float64, have these weights; sums there are 30 numbers long."""
    assert len(seen) == len(expected)
    for call, weights in zip(seen, expected, strict=True):
        found = call.matrix.dense()
        assert found.shape == weights.shape
        allowance = 1e4 * torch.finfo(torch.float64).eps
        torch.testing.assert_close(found, weights.detach(), rtol=allowance, atol=1e-30)


def multi_head(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(5)
    layer = nn.MultiheadAttention(MODEL_DIM, HEADS, dtype=torch.float64, **options)
    for parameter in layer.parameters():
        # Larger than it starts, so that attention is far from uniform.
        nn.init.normal_(parameter, std=0.3)
    return layer


BEHIND = torch.ones(KEYS, KEYS, dtype=torch.bool).triu(diagonal=1)

MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": ~KEPT},
    "padding as numbers": {
        "key_padding_mask": torch.zeros(BATCH, KEYS).double().masked_fill(~KEPT, -torch.inf)
    },
    "mask": {"attn_mask": ~scattered(KEYS, KEYS)},
    "mask of each head": {"attn_mask": ~scattered(BATCH * HEADS, KEYS, KEYS)},
    "numbers": {"attn_mask": numbers(KEYS, KEYS)},
    "causal": {"attn_mask": BEHIND, "is_causal": True},
    "causal and padding": {"attn_mask": BEHIND, "key_padding_mask": ~KEPT},
}
"""In these masks, True forbids."""

WEIGHTS: dict[str, dict[str, Any]] = {
    "no weights": {"need_weights": False},
    "averaged weights": {"need_weights": True, "average_attn_weights": True},
    "weights": {"need_weights": True, "average_attn_weights": False},
}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", MASKS)
def test_multi_head_attention(mask: str, weights: str, batch_first: bool) -> None:
    layer = multi_head(batch_first=batch_first)
    x = tokens(KEYS, batch_first=batch_first)
    options = {**MASKS[mask], **WEIGHTS[weights]}
    seen = watched(layer, x, x, x, **options)
    assert_own_weights(seen, own_weights(layer, x, x, x, **options))
    assert (seen[0].batch, seen[0].heads, seen[0].kind) == (BATCH, HEADS, "self")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", ["none", "padding", "mask"])
@pytest.mark.parametrize(
    "made_with",
    [{"add_zero_attn": True}, {"add_bias_kv": True}, {"add_zero_attn": True, "add_bias_kv": True}],
    ids=["zero", "bias", "zero and bias"],
)
def test_multi_head_attention_with_more_keys(
    made_with: dict[str, bool], mask: str, weights: str
) -> None:
    layer = multi_head(batch_first=True, **made_with)
    x = tokens(KEYS)
    options = {**MASKS[mask], **WEIGHTS[weights]}
    seen = watched(layer, x, x, x, **options)
    assert seen[0].keys == KEYS + len(made_with)
    assert seen[0].kind == "self"
    assert_own_weights(seen, own_weights(layer, x, x, x, **options))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", ["none", "padding", "mask"])
def test_multi_head_attention_of_one_sequence(mask: str, weights: str) -> None:
    layer = multi_head(batch_first=True)
    x = tokens(KEYS)[1]
    options = {**MASKS[mask], **WEIGHTS[weights]}
    if "key_padding_mask" in options:
        options["key_padding_mask"] = options["key_padding_mask"][1]
    seen = watched(layer, x, x, x, **options)
    assert seen[0].batch == 1
    assert_own_weights(seen, own_weights(layer, x, x, x, **options))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("queries", [QUERIES, KEYS])
def test_multi_head_attention_to_another_sequence(queries: int, weights: str) -> None:
    layer = multi_head(batch_first=True, kdim=5, vdim=9)
    x = tokens(queries)
    key, value = numbers(BATCH, KEYS, 5), numbers(BATCH, KEYS, 9)
    options = {"key_padding_mask": ~KEPT, **WEIGHTS[weights]}
    seen = watched(layer, x, key, value, **options)
    assert seen[0].kind == "cross"
    assert_own_weights(seen, own_weights(layer, x, key, value, **options))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_values_of_their_own_do_not_make_another_sequence(weights: str, batch_first: bool) -> None:
    """As in DETR, where positions are added to queries and keys only."""
    layer = multi_head(batch_first=batch_first)
    x, value = (tokens(KEYS, batch_first=batch_first, seed=seed) for seed in (6, 7))
    seen = watched(layer, x, x, value, **WEIGHTS[weights])
    assert seen[0].kind == "self"


@pytest.mark.parametrize("weights", WEIGHTS)
def test_multi_head_attention_without_its_module(weights: str) -> None:
    layer = multi_head(batch_first=False)
    x = tokens(KEYS, batch_first=False)
    function = Kernel(F.multi_head_attention_forward)
    seen = watched(
        function,
        query=x,
        key=x,
        value=x,
        embed_dim_to_check=MODEL_DIM,
        num_heads=HEADS,
        in_proj_weight=layer.in_proj_weight,
        in_proj_bias=layer.in_proj_bias,
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=layer.out_proj.weight,
        out_proj_bias=layer.out_proj.bias,
        **WEIGHTS[weights],
    )
    assert_own_weights(seen, own_weights(layer, x, x, x))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_dropout_in_multi_head_attention(weights: str) -> None:
    layer = multi_head(batch_first=True, dropout=0.5)
    x = tokens(KEYS)
    seen = watched(layer.train(), x, x, x, **WEIGHTS[weights])
    assert seen[0].check.passed is None
    assert_own_weights(seen, own_weights(layer.eval(), x, x, x))


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        MODEL_DIM, 4, 11, batch_first=True, dtype=torch.float64, **options
    )
    return layers(nn.TransformerEncoder(layer, 2))


ENCODER_MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"src_key_padding_mask": ~KEPT},
    "causal": {"mask": BEHIND, "is_causal": True},
    "causal and padding": {"mask": BEHIND, "src_key_padding_mask": ~KEPT},
}


@pytest.mark.pairwise
@pytest.mark.parametrize("mask", ENCODER_MASKS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_encoder_of_torch(norm_first: bool, training: bool, mask: str) -> None:
    model = encoder(norm_first=norm_first, dropout=0.0).train(training)
    x, options = tokens(KEYS), ENCODER_MASKS[mask]
    seen = watched(model, x, **options)
    assert [call.module for call in seen] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert all(call.check.passed and call.kind == "self" for call in seen)
    assert_own_weights(seen, own_weights(model, x, **options))


@pytest.mark.filterwarnings("ignore:.*nested tensor:UserWarning")
@pytest.mark.parametrize("mask", ENCODER_MASKS)
def test_encoder_of_torch_where_it_would_take_its_fast_path(mask: str) -> None:
    """There torch has one function for a whole layer, in which nothing could be seen."""
    model, x, options = encoder().eval(), tokens(KEYS), ENCODER_MASKS[mask]
    expected = own_weights(model, x, **options)
    with torch.no_grad():
        fast = model(x, **options)
        with regard.watch(model) as seen:
            output = model(x, **options)
    seen.verify()
    assert_own_weights(seen, expected)
    real = KEPT if "padding" in mask else torch.ones_like(KEPT)
    # Another kernel, other roundings; at padding, the fast one returns zeros.
    torch.testing.assert_close(output[real], fast[real], rtol=0, atol=1e-10)


def test_dropout_in_an_encoder_of_torch() -> None:
    model = encoder(dropout=0.3).train()
    seen = watched(model, tokens(KEYS))
    assert [str(call.check) for call in seen] == ["dropout", "dropout"]


@pytest.mark.parametrize("training", [False, True])
def test_decoder_of_torch(training: bool) -> None:
    layer = nn.TransformerDecoderLayer(
        MODEL_DIM, 4, 11, dropout=0.0, batch_first=True, dtype=torch.float64
    )
    model = layers(nn.TransformerDecoder(layer, 2)).train(training)
    # As long as each other, so that lengths don't tell.
    target, memory = tokens(KEYS), tokens(KEYS, seed=9)
    options = {"tgt_mask": BEHIND, "memory_key_padding_mask": ~KEPT}
    seen = watched(model, target, memory, **options)
    assert [(call.module, call.kind) for call in seen] == [
        ("layers.0.self_attn", "self"),
        ("layers.0.multihead_attn", "cross"),
        ("layers.1.self_attn", "self"),
        ("layers.1.multihead_attn", "cross"),
    ]
    assert [str(call.pattern) for call in seen] == 2 * ["causal()", f"padding([{KEYS}, 4])"]
    assert_own_weights(seen, own_weights(model, target, memory, **options))


def test_transformer_of_torch() -> None:
    model = nn.Transformer(
        MODEL_DIM, 4, 1, 2, 11, dropout=0.0, batch_first=True, dtype=torch.float64
    )
    model = layers(model)
    source, target = tokens(KEYS), tokens(QUERIES, seed=9)
    options = {
        "tgt_mask": BEHIND[:QUERIES, :QUERIES],
        "tgt_is_causal": True,
        "src_key_padding_mask": ~KEPT,
        "memory_key_padding_mask": ~KEPT,
    }
    seen = watched(model, source, target, **options)
    assert [call.kind for call in seen] == ["self", *2 * ["self", "cross"]]
    assert seen["decoder.layers.1.multihead_attn"].keys == KEYS
    assert_own_weights(seen, own_weights(model, source, target, **options))
