"""What `watch` sees of each kernel is the softmax that the kernel computed."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import regard
from regard.layers import MultiHeadAttention
from regard.models import ImageEncoder, TextDecoder, TextEncoder
from regard.positions import Relative, alibi, softcap
from regard.watch import Overwritten, Seen

pytestmark = pytest.mark.usefixtures("one_thread")

BATCH, HEADS, QUERIES, KEYS, KEY_DIM, VALUE_DIM = 2, 3, 5, 7, 4, 6
MODEL_DIM = 24


class Kernel(nn.Module):
    """A model that is nothing but one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)


class Inputs(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        return Inputs(*(change(x) for x in self))


def inputs(
    *,
    batch: tuple[int, ...] = (BATCH,),
    heads: int = HEADS,
    key_heads: int = HEADS,
    queries: int = QUERIES,
    keys: int = KEYS,
    dtype: torch.dtype = torch.float64,
) -> Inputs:
    """Draw tensors, the queries large enough for attention that is far from uniform."""
    chance = torch.Generator().manual_seed(1)
    query = 2 * torch.randn(*batch, heads, queries, KEY_DIM, generator=chance)
    key = torch.randn(*batch, key_heads, keys, KEY_DIM, generator=chance)
    value = torch.randn(*batch, key_heads, keys, VALUE_DIM, generator=chance)
    return Inputs(query.to(dtype), key.to(dtype), value.to(dtype))


def scattered(*shape: int, seed: int = 2) -> Tensor:
    """Draw who may look at whom; each at the first key at least."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[..., 0] = True
    return mask


def numbers(*shape: int, seed: int = 3) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance, dtype=torch.float64)


def softmax_of(
    query: Tensor,
    key: Tensor,
    *,
    scale: float | None = None,
    allowed: Tensor | None = None,
    change: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Tensor:
    """Return the weights in float64, [batch, heads, queries, keys]."""
    query, key = query.double(), key.double()
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = change(scores)
    return (scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)).softmax(dim=-1)


def assert_weights(seen: Seen, expected: Tensor, *, index: int = 0) -> None:
    """Assert that a call's matrix is what it must be, as far as its type can tell.

    A score is a sum of key_dim products, and with it goes the exponential; a row is summed over its
    keys. None of the scores here is larger than 50.
    """
    found = seen[index].matrix.dense()
    assert found.shape == expected.shape
    share = torch.finfo(found.dtype).eps * (50 * (KEY_DIM + 4) + 20 + 2 * expected.shape[-1])
    torch.testing.assert_close(found.double(), expected.double(), rtol=share, atol=1e-30)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, tuple):
        return all(same(a, b) for a, b in zip(first, second, strict=True))
    return first is second is None or torch.equal(first, second)


def watched(model: nn.Module, *args: Any, **options: Any) -> Seen:
    """Run a model without and with somebody who looks on, and assert that it does not matter."""
    torch.manual_seed(4)
    expected = model(*args, **options)
    torch.manual_seed(4)
    with regard.watch(model) as seen:
        found = model(*args, **options)
    assert same(found, expected)
    seen.verify()
    return seen


def seen_sdpa(*args: Any, **options: Any) -> Seen:
    seen = watched(Kernel(F.scaled_dot_product_attention), *args, **options)
    assert [(call.kernel, call.problem) for call in seen] == [("sdpa", "")]
    return seen


# scaled_dot_product_attention


def by_place(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Seen:
    return seen_sdpa(query, key, value, mask, 0.0, False)


def by_name(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Seen:
    return seen_sdpa(
        value=value,
        key=key,
        query=query,
        enable_gqa=False,
        scale=None,
        is_causal=False,
        dropout_p=0.0,
        attn_mask=mask,
    )


def mixed(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Seen:
    return seen_sdpa(query, key, attn_mask=mask, value=value)


@pytest.mark.parametrize("call", [by_place, by_name, mixed])
def test_arguments_may_be_passed_in_any_way(call: Callable[..., Seen]) -> None:
    given = inputs()
    mask = scattered(BATCH, 1, QUERIES, KEYS)
    assert_weights(call(*given, mask), softmax_of(given.query, given.key, allowed=mask))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("masked", [False, True])
def test_all_types_are_seen(dtype: torch.dtype, masked: bool) -> None:
    given = inputs(dtype=dtype)
    mask = scattered(BATCH, 1, QUERIES, KEYS) if masked else None
    seen = seen_sdpa(*given, attn_mask=mask)
    assert seen[0].dtype == dtype
    assert seen[0].check.passed
    assert_weights(seen, softmax_of(given.query, given.key, allowed=mask))


@pytest.mark.parametrize(
    "shape",
    [
        (QUERIES, KEYS),
        (1, KEYS),
        (1, QUERIES, KEYS),
        (HEADS, QUERIES, KEYS),
        (1, 1, 1, KEYS),
        (BATCH, 1, 1, KEYS),
        (BATCH, 1, QUERIES, KEYS),
        (1, HEADS, QUERIES, KEYS),
        (BATCH, HEADS, QUERIES, KEYS),
        (BATCH, HEADS, 1, KEYS),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["bool", "-inf", "numbers"])
def test_masks_of_all_shapes(kind: str, shape: tuple[int, ...]) -> None:
    given = inputs()
    allowed = scattered(*shape)
    added = numbers(*shape) if kind == "numbers" else torch.zeros(shape, dtype=torch.float64)
    added = added.masked_fill(~allowed, -torch.inf)
    seen = seen_sdpa(*given, attn_mask=allowed if kind == "bool" else added)
    assert seen[0].check.passed
    expected = softmax_of(given.query, given.key, change=lambda scores: scores + added)
    assert_weights(seen, expected)


@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (4, 7), (7, 4), (1, 5), (5, 1)])
def test_causal_is_aligned_at_the_first_key(queries: int, keys: int) -> None:
    """PyTorch lets query i look at keys 0 … i, however many keys there are."""
    given = inputs(queries=queries, keys=keys)
    allowed = torch.arange(queries)[:, None] >= torch.arange(keys)
    seen = seen_sdpa(*given, is_causal=True)
    assert seen[0].check.passed
    assert_weights(seen, softmax_of(given.query, given.key, allowed=allowed))


@pytest.mark.parametrize("queries", [6, 4, 1])
def test_a_causal_mask_is_aligned_where_it_says(queries: int) -> None:
    given = inputs(queries=queries, keys=6)
    allowed = torch.arange(6 - queries, 6)[:, None] >= torch.arange(6)
    seen = seen_sdpa(*given, attn_mask=allowed)
    assert_weights(seen, softmax_of(given.query, given.key, allowed=allowed))
    assert seen[0].looks == "self"


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 2.5])
def test_a_scale_is_heeded(scale: float) -> None:
    given = inputs()
    assert_weights(seen_sdpa(*given, scale=scale), softmax_of(given.query, given.key, scale=scale))


@pytest.mark.parametrize(("heads", "key_heads"), [(6, 2), (6, 3), (5, 1), (5, 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_grouped_heads(heads: int, key_heads: int, masked: bool) -> None:
    given = inputs(heads=heads, key_heads=key_heads)
    mask = scattered(BATCH, heads, QUERIES, KEYS) if masked else None
    seen = seen_sdpa(*given, attn_mask=mask, enable_gqa=True)
    assert (seen[0].heads, seen[0].key_heads) == (heads, key_heads)
    assert seen[0].check.passed
    assert_weights(seen, softmax_of(given.query, given.key, allowed=mask))


AXES = {
    2: inputs(batch=(), heads=1, key_heads=1).map(lambda x: x[0]),
    3: inputs(heads=1, key_heads=1).map(lambda x: x[:, 0]),
    4: inputs(),
    5: inputs(batch=(2, 3), heads=5, key_heads=5),
    6: inputs(batch=(2, 1, 3), heads=5, key_heads=5),
}
"""Inputs by their number of axes; what has less than four has one head."""


def four_axes(tensor: Tensor) -> Tensor:
    if tensor.dim() < 4:
        return tensor.reshape(-1, 1, *tensor.shape[-2:])
    return tensor.flatten(end_dim=-4)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_any_number_of_axes(axes: int, is_causal: bool) -> None:
    given = AXES[axes]
    query, key, _ = given.map(four_axes)
    allowed = torch.arange(QUERIES)[:, None] >= torch.arange(KEYS) if is_causal else None
    seen = seen_sdpa(*given, is_causal=is_causal)
    assert seen[0].check.passed
    assert_weights(seen, softmax_of(query, key, allowed=allowed))


@pytest.mark.parametrize("kind", ["bool", "numbers"])
@pytest.mark.parametrize(
    ("axes", "mask_axes"), [(a, m) for a in AXES for m in range(2, a + 1)], ids=str
)
def test_masks_with_any_number_of_axes(axes: int, mask_axes: int, kind: str) -> None:
    given = AXES[axes]
    query, key, _ = given.map(four_axes)
    whole = (*given.query.shape[:-1], KEYS)
    shape = whole[len(whole) - mask_axes :]
    added = numbers(*shape)
    allowed = scattered(*shape)
    if kind == "bool":
        added = torch.zeros(shape, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    seen = seen_sdpa(*given, attn_mask=allowed if kind == "bool" else added)
    assert seen[0].check.passed
    everywhere = four_axes(added.expand(whole))
    assert_weights(seen, softmax_of(query, key, change=lambda scores: scores + everywhere))


@pytest.mark.parametrize("part", ["query", "key", "value", "key and value", "heads"])
def test_what_serves_all_sequences_may_be_passed_once(part: str) -> None:
    """PyTorch broadcasts all axes but the last two."""
    query, key, value = inputs()
    if part == "query":
        query = query[:1]
    if part.startswith("key"):
        key = key[:1]
    if part.endswith("value"):
        value = value[:1]
    if part.startswith("heads"):
        key, value = key[:, :1], value[:, :1]
    expected = softmax_of(
        query.expand(BATCH, -1, -1, -1), key.expand(BATCH, HEADS, -1, -1).contiguous()
    )
    seen = seen_sdpa(query, key, value)
    assert_weights(seen, expected if part != "value" else softmax_of(query, key))


def test_rows_without_keys_are_empty() -> None:
    given = inputs()
    allowed = scattered(QUERIES, KEYS)
    allowed[2] = False
    seen = seen_sdpa(*given, attn_mask=allowed)
    assert_weights(seen, softmax_of(given.query, given.key, allowed=allowed).nan_to_num(0.0))


def test_other_keys_are_told_from_the_own_ones() -> None:
    cross = seen_sdpa(*inputs(queries=5, keys=7))
    own = seen_sdpa(*inputs(queries=5, keys=5))
    step = seen_sdpa(*inputs(queries=1, keys=7))
    assert (cross[0].looks, own[0].looks, step[0].looks) == ("cross", "self", "self")


def test_dropout_is_left_out_of_the_matrix() -> None:
    given = inputs()
    mask = scattered(QUERIES, KEYS)
    seen = seen_sdpa(*given, attn_mask=mask, dropout_p=0.4)
    assert str(seen[0].check) == "dropout"
    assert seen[0].check.passed is None
    assert_weights(seen, softmax_of(given.query, given.key, allowed=mask))


@pytest.mark.parametrize("kernel", [F.scaled_dot_product_attention, regard.attend])
def test_autocast_rounds_before_the_kernel_computes(kernel: Callable[..., Tensor]) -> None:
    given = inputs(dtype=torch.float32)
    query = 4 * given.query
    with torch.autocast("cpu", torch.bfloat16):
        seen = watched(Kernel(kernel), query, given.key, given.value)
    assert_weights(seen, softmax_of(query.bfloat16(), given.key.bfloat16()))


def test_a_wrong_kernel_is_found_out() -> None:
    """So that a check which passes says something."""
    given = inputs()

    class Wrong(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            output = func(*args, **(kwargs or {}))
            return 1.01 * output if func is F.scaled_dot_product_attention else output

    model = Kernel(F.scaled_dot_product_attention)
    # The mode that was entered first is the last to be asked.
    with Wrong(), regard.watch(model) as seen:
        model(*given)
    assert seen[0].check.passed is False
    with pytest.raises(RuntimeError, match="something else than A @ V"):
        seen.verify()


@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference"])
@pytest.mark.parametrize("keep", ["tensors", "copies"])
@pytest.mark.parametrize("kind", ["bool", "each head", "numbers", "bias of attend"])
def test_a_mask_that_is_written_over_later_does_not_change_what_was_seen(
    kind: str, keep: str, mode: str
) -> None:
    given = inputs()
    model = Kernel(F.scaled_dot_product_attention)
    contexts = {"grad": nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}
    with contexts[mode]():
        query, key, value = given.map(torch.clone)
        shape = (1, HEADS if kind == "each head" else 1, QUERIES, KEYS)
        mask = numbers(*shape) if kind in ("numbers", "bias of attend") else scattered(*shape)
        added = mask.clone()
        if mask.dtype == torch.bool:
            added = torch.zeros(shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
        if kind == "bias of attend":
            model = Kernel(regard.attend)
        option = {"bias" if kind == "bias of attend" else "attn_mask": mask}
        with regard.watch(model, keep=keep) as seen:
            model(query, key, value, **option)
        mask.copy_(mask.flip(-1))
    expected = softmax_of(given.query, given.key, change=lambda scores: scores + added)
    try:
        assert_weights(seen, expected)
    except Overwritten:
        # It may say that it does not know, but copies are there to be kept.
        assert keep == "tensors"


# nn.MultiheadAttention and what is made of it


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


def tokens(count: int, *, batch_first: bool = True, seed: int = 6) -> Tensor:
    x = numbers(BATCH, count, MODEL_DIM, seed=seed)
    return x if batch_first else x.transpose(0, 1)


KEPT = torch.tensor([[True] * KEYS, [True] * 4 + [False] * (KEYS - 4)])
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
    assert (seen[0].batch, seen[0].heads, seen[0].looks) == (BATCH, HEADS, "self")


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
    assert seen[0].looks == "self"
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
    assert seen[0].looks == "cross"
    assert_own_weights(seen, own_weights(layer, x, key, value, **options))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_values_of_their_own_do_not_make_another_sequence(weights: str, batch_first: bool) -> None:
    """As in DETR, where positions are added to queries and keys only."""
    layer = multi_head(batch_first=batch_first)
    x, value = (tokens(KEYS, batch_first=batch_first, seed=seed) for seed in (6, 7))
    seen = watched(layer, x, x, value, **WEIGHTS[weights])
    assert seen[0].looks == "self"


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


def layers(model: nn.Module) -> nn.Module:
    """Make the layers of a model of torch differ: they start as copies of one."""
    torch.manual_seed(8)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


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


@pytest.mark.parametrize("mask", ENCODER_MASKS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_encoder_of_torch(norm_first: bool, training: bool, mask: str) -> None:
    model = encoder(norm_first=norm_first, dropout=0.0).train(training)
    x, options = tokens(KEYS), ENCODER_MASKS[mask]
    seen = watched(model, x, **options)
    assert [call.module for call in seen] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert all(call.check.passed and call.looks == "self" for call in seen)
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
    assert [(call.module, call.looks) for call in seen] == [
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
    assert [call.looks for call in seen] == ["self", *2 * ["self", "cross"]]
    assert seen["decoder.layers.1.multihead_attn"].keys == KEYS
    assert_own_weights(seen, own_weights(model, source, target, **options))


# Attention that is written by hand


def scores_of(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT * KEY_DIM**-0.5


def by_functional(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax(scores_of(query, key), dim=-1)
    return weights, weights @ value


def by_torch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(scores_of(query, key), -1)
    return weights, torch.matmul(weights, value)


def by_method(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=query.dim() - 1)
    return weights, weights.matmul(value)


def by_module(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = nn.Softmax(dim=-1)(scores_of(query, key))
    return weights, weights @ value


def by_einsum(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("...qd,...kd->...qk", query, key) * KEY_DIM**-0.5
    weights = scores.softmax(-1)
    return weights, torch.einsum("...qk,...kd->...qd", weights, value)


def with_dropout(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    return weights, F.dropout(weights, 0.4, training=True) @ value


def with_a_dropout_module(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    return weights, nn.Dropout(0.4)(weights) @ value


def with_another_type(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax(scores_of(query, key), dim=-1, dtype=torch.float64)
    return weights, weights.to(torch.float32) @ value.to(torch.float32)


def with_all_between(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    dropped = F.dropout(weights.type_as(value), 0.4, training=True).contiguous()
    return weights, dropped.view(dropped.shape).reshape(dropped.shape) @ value


def with_a_mask_after(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    hidden = ~scattered(QUERIES, KEYS)
    weights = scores_of(query, key).softmax(dim=-1).masked_fill(hidden, 0.0)
    return weights, weights @ value


def with_weights_above_one(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """What a model does to its weights is its own affair."""
    hidden = ~scattered(QUERIES, KEYS)
    weights = scores_of(query, key).softmax(dim=-1).masked_fill(hidden, 2.0)
    return weights, weights @ value


def with_a_mask_before(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    hidden = ~scattered(QUERIES, KEYS)
    weights = scores_of(query, key).masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return weights, weights @ value


def with_flat_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores_of(query, key).softmax(dim=-1)
    flat = weights.reshape(-1, QUERIES, KEYS)
    output = torch.bmm(flat, value.reshape(-1, KEYS, VALUE_DIM))
    return weights, output.view(*query.shape[:-1], VALUE_DIM)


BY_HAND = (
    by_functional,
    by_torch,
    by_method,
    by_module,
    by_einsum,
    with_dropout,
    with_a_dropout_module,
    with_another_type,
    with_all_between,
    with_a_mask_after,
    with_weights_above_one,
    with_a_mask_before,
    with_flat_heads,
)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("attention", BY_HAND)
def test_attention_by_hand(attention: Callable[..., tuple[Tensor, Tensor]], axes: int) -> None:
    model = Kernel(attention)
    given = AXES[axes]
    seen = watched(model, *given)
    assert [(call.kernel, str(call.check)) for call in seen] == [("softmax", "own weights")]
    torch.manual_seed(4)
    assert torch.equal(seen[0].matrix.dense(), four_axes(attention(*given)[0]))


def test_attention_by_hand_is_what_is_asked_for() -> None:
    """What the other test compares with, held against the definition."""
    given = AXES[4]
    for attention in (by_functional, by_torch, by_method, by_module, by_einsum):
        assert_weights(watched(Kernel(attention), *given), softmax_of(given.query, given.key))


def test_each_of_several_softmaxes_is_seen() -> None:
    first, second = inputs(), inputs(queries=3, keys=3)

    def both() -> tuple[Tensor, Tensor]:
        return by_torch(*first)[1], by_method(*second)[1]

    seen = watched(Kernel(both))
    assert len(seen) == 2
    assert_weights(seen, softmax_of(first.query, first.key))
    assert_weights(seen, softmax_of(second.query, second.key), index=1)


def classifier(x: Tensor) -> Tensor:
    return F.softmax(x, dim=-1)


def router(x: Tensor) -> Tensor:
    share, expert = torch.softmax(x, dim=-1).topk(2)
    return (share[..., None] * x[:, None]).sum() + expert.sum()


def along_another_axis(x: Tensor) -> Tensor:
    return x.softmax(dim=0) @ x.T


def along_another_axis_of_three(x: Tensor) -> Tensor:
    return F.softmax(x[None], dim=1) @ x.T


def of_one_axis(x: Tensor) -> Tensor:
    return x[0].softmax(dim=-1) @ x.T


def gate(x: Tensor) -> Tensor:
    return x.softmax(dim=-1) * x


def something_else_multiplied(x: Tensor) -> Tensor:
    return x.softmax(dim=-1).sum() + (x @ x.T).sum()


@pytest.mark.parametrize(
    "function",
    [
        classifier,
        router,
        along_another_axis,
        along_another_axis_of_three,
        of_one_axis,
        gate,
        something_else_multiplied,
    ],
)
def test_other_softmaxes_are_not_taken_for_attention(function: Callable[[Tensor], Tensor]) -> None:
    model = Kernel(function)
    with pytest.raises(RuntimeError, match="no attention was seen"), regard.watch(model):
        model(numbers(QUERIES, KEYS))


# attend, and what is made of it


def with_lse(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    return regard.attend_with_lse(*args, **options)


CAP = 1.5
POSITIONS = torch.tensor([6, 0, 3, 3, 5])


class Attended(NamedTuple):
    """A call of `attend`, and what it means.

    Attributes:
        options: what it is called with.
        allowed: who may look at whom, or None for everyone.
        change: what is done to scores.
        heads: the number of query heads.
        key_heads: the number of key heads.
    """

    options: dict[str, Any]
    allowed: Tensor | None = None
    change: Callable[[Tensor], Tensor] = lambda scores: scores
    heads: int = HEADS
    key_heads: int = HEADS


def distances(positions: Sequence[int] | Tensor) -> Tensor:
    return torch.as_tensor(positions)[:, None] - torch.arange(KEYS)


def linear(scores: Tensor) -> Tensor:
    return scores - alibi(HEADS).slopes[:, None, None] * distances(range(2, 7)).abs()


LAST = distances(range(KEYS - QUERIES, KEYS))
"""How far before its query each key stands, if the last query stands at the last key."""

ATTENDED = {
    "plain": Attended({}),
    "scale": Attended({"scale": 0.9}),
    "causal": Attended({"pattern": regard.causal()}, LAST >= 0),
    "window": Attended(
        {"pattern": regard.causal() & regard.window(before=2)}, (LAST >= 0) & (LAST <= 2)
    ),
    "padding": Attended({"pattern": regard.padding([KEYS, 4])}, KEPT[:, None, None]),
    "gaps": Attended(
        {"pattern": regard.columns(every=3)},
        (torch.arange(KEYS) % 3 == 0).expand(QUERIES, -1),
    ),
    "first query": Attended({"pattern": regard.causal(), "positions": 0}, distances(range(5)) >= 0),
    "positions": Attended(
        {"pattern": regard.causal(), "positions": POSITIONS}, distances(POSITIONS) >= 0
    ),
    "positions one after the other": Attended(
        {"pattern": regard.causal(), "positions": torch.arange(1, 6)}, distances(range(1, 6)) >= 0
    ),
    "alibi": Attended({"bias": alibi(HEADS), "pattern": regard.causal()}, LAST >= 0, linear),
    "softcap": Attended(
        {"bias": softcap(CAP)}, change=lambda scores: CAP * torch.tanh(scores / CAP)
    ),
    "numbers": Attended(
        {"bias": numbers(1, HEADS, QUERIES, KEYS)},
        change=lambda scores: scores + numbers(1, HEADS, QUERIES, KEYS),
    ),
    "numbers and causal": Attended(
        {"bias": numbers(BATCH, 1, QUERIES, KEYS), "pattern": regard.causal(), "positions": 1},
        distances(range(1, 6)) >= 0,
        lambda scores: scores + numbers(BATCH, 1, QUERIES, KEYS),
    ),
    "numbers and positions": Attended(
        {"bias": numbers(1, 1, QUERIES, KEYS), "positions": torch.arange(2, 7)},
        change=lambda scores: scores + numbers(1, 1, QUERIES, KEYS),
    ),
    "grouped": Attended({}, heads=6, key_heads=2),
    "grouped and causal": Attended({"pattern": regard.causal()}, LAST >= 0, heads=6, key_heads=3),
}


@pytest.mark.parametrize("function", [regard.attend, with_lse])
@pytest.mark.parametrize("name", ATTENDED)
def test_attend(name: str, function: Callable[..., Any]) -> None:
    case = ATTENDED[name]
    given = inputs(heads=case.heads, key_heads=case.key_heads)
    seen = watched(Kernel(function), *given, **case.options)
    assert [(call.kernel, call.problem) for call in seen] == [("attend", "")]
    assert seen[0].check.passed
    expected = softmax_of(
        given.query,
        given.key,
        scale=case.options.get("scale"),
        allowed=case.allowed,
        change=case.change,
    )
    assert_weights(seen, expected)


def test_dropout_in_attend() -> None:
    given = inputs()
    seen = watched(Kernel(regard.attend), *given, dropout=0.3)
    assert str(seen[0].check) == "dropout"
    assert_weights(seen, softmax_of(given.query, given.key))


def assert_equal_matrices(seen: Seen, expected: Sequence[regard.AttentionMatrix]) -> None:
    assert len(seen) == len(expected)
    for call, matrix in zip(seen, expected, strict=True):
        assert call.check.passed
        torch.testing.assert_close(call.matrix.dense(), matrix.dense(), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("queries", [QUERIES, KEYS])
def test_a_layer_that_looks_at_a_context(queries: int) -> None:
    layer = MultiHeadAttention(MODEL_DIM, 6, num_key_heads=2, context_dim=5).double()
    x, context = tokens(queries), numbers(BATCH, KEYS, 5)
    pattern = regard.padding([KEYS, 4])
    seen = watched(layer, x, context, pattern=pattern)
    assert (seen[0].heads, seen[0].key_heads) == (6, 2)
    assert_equal_matrices(seen, [layer.matrix(x, context, pattern=pattern)])


WORDS = torch.randint(19, (BATCH, KEYS), generator=torch.Generator().manual_seed(10))


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative", None])
def test_text_encoder(positions: str | None) -> None:
    torch.manual_seed(11)
    model = layers(TextEncoder(19, MODEL_DIM, 2, 4, positions=positions)).eval()
    pattern = regard.padding([KEYS, 4])
    seen = watched(model, WORDS, pattern=pattern)
    assert [call.module for call in seen] == ["layers.0.attention", "layers.1.attention"]
    assert_equal_matrices(seen, model.matrices(WORDS, pattern=pattern))


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
def test_text_decoder(positions: str) -> None:
    model = layers(TextDecoder(19, MODEL_DIM, 2, 4, num_key_heads=2, positions=positions)).eval()
    seen = watched(model, WORDS, starts=[0, 3])
    assert_equal_matrices(seen, model.matrices(WORDS, starts=[0, 3]))


def test_image_encoder() -> None:
    model = layers(ImageEncoder(12, 4, MODEL_DIM, 2, 3)).eval()
    images = numbers(BATCH, 3, 12, 12).float()
    assert_equal_matrices(watched(model, images), model.matrices(images))


@pytest.mark.parametrize("keep", ["tensors", "copies"])
def test_a_bias_that_learns_on_does_not_change_what_was_seen(keep: str) -> None:
    torch.manual_seed(12)
    bias = Relative(HEADS, num_buckets=8, max_distance=16)
    layer = MultiHeadAttention(MODEL_DIM, HEADS, bias=bias).double()
    nn.init.normal_(next(bias.parameters()))
    x = tokens(KEYS)
    before = layer.matrix(x).dense()
    learns = torch.optim.SGD(bias.parameters(), lr=10.0)
    with regard.watch(layer, keep=keep) as seen:
        layer(x).square().sum().backward()
        learns.step()
        layer(x)
    after = layer.matrix(x).dense()
    learns.step()
    assert not torch.allclose(before, after, atol=1e-3)
    for call, expected in zip(seen, (before, after), strict=True):
        torch.testing.assert_close(call.matrix.dense(), expected)


# attend as one of the functions that torch lets others override


@pytest.mark.parametrize("function", [regard.attend, regard.attend_with_lse])
def test_a_function_mode_may_stand_in_for_attend(function: Callable[..., Any]) -> None:
    asked: list[Any] = []

    class Instead(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            if func is function:
                asked.append((args, kwargs))
                return instead
            return func(*args, **(kwargs or {}))

    given = inputs()
    output, lse = torch.zeros_like(given.value[:, :, :QUERIES]), torch.zeros(BATCH, HEADS, QUERIES)
    instead = output if function is regard.attend else (output, lse)
    with Instead():
        assert function(*given, pattern=regard.causal()) is instead
    ((args, options),) = asked
    assert all(one is other for one, other in zip(args, given, strict=True))
    assert options["pattern"] == regard.causal()
    assert function(*given) is not instead


def test_a_kind_of_tensor_may_stand_in_for_attend() -> None:
    asked: list[Any] = []

    class Asked(Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    given = inputs()
    output = regard.attend(given.query.as_subclass(Asked), given.key, given.value)
    assert regard.attend in asked
    plain = output.as_subclass(Tensor)
    assert torch.equal(plain, regard.attend(*given))


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_somebody_else_may_look_on_too(order: str) -> None:
    asked: list[Any] = []

    class Looks(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            asked.append(func)
            return func(*args, **(kwargs or {}))

    given, model = inputs(), Kernel(regard.attend)
    if order == "inside":
        with regard.watch(model) as seen, Looks():
            model(*given)
    else:
        with Looks(), regard.watch(model) as seen:
            model(*given)
    assert asked.count(regard.attend) == 1
    assert len(seen) == 1
    assert_weights(seen, softmax_of(given.query, given.key))
