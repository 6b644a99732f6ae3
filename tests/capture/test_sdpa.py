"""What `watch` sees of scaled_dot_product_attention is the softmax that it computed."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

import regard
from regard.capture import Overwritten, Seen
from tests.capture.calls import (
    AXES,
    BATCH,
    HEADS,
    KEYS,
    QUERIES,
    Kernel,
    assert_weights,
    four_axes,
    inputs,
    numbers,
    scattered,
    softmax_of,
    watched,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def seen_sdpa(*args: Any, **options: Any) -> Seen:
    seen = watched(Kernel(F.scaled_dot_product_attention), *args, **options)
    assert [(call.kernel, call.problem) for call in seen] == [("sdpa", "")]
    return seen


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
    assert seen[0].kind == "self"


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
    assert (cross[0].kind, own[0].kind, step[0].kind) == ("cross", "self", "self")


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
    with pytest.raises(RuntimeError, match="differs from A @ V"):
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
