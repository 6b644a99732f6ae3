"""What doesn't fit is refused by name, with the rule and the value."""

from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard import attend, causal, documents, global_at, neighbours, padding
from regard import positions as positions_module
from regard.patterns import from_mask
from regard.positions import Relative, alibi

pytestmark = pytest.mark.usefixtures("unchecked")

QUERY = torch.zeros(2, 6, 5, 3)
KEY = torch.zeros(2, 3, 7, 3)
VALUE = torch.zeros(2, 3, 7, 4)


def refusal(
    query: Any = QUERY,
    key: Any = KEY,
    value: Any = VALUE,
    *,
    error: type[Exception] = ValueError,
    **options: Any,
) -> str:
    """Return the message with which a call is refused: the same by all who take these arguments."""
    messages = set[str]()
    for function in (attend, regard.attend_with_lse, regard.plan):
        with pytest.raises(error) as raised:
            function(query, key, value, **options)
        messages.add(str(raised.value))
    (message,) = messages
    return message


def with_tensor(name: str, tensor: Any) -> dict[str, Any]:
    return {"query": QUERY, "key": KEY, "value": VALUE} | {name: tensor}


def test_these_arguments_are_fine() -> None:
    assert attend(QUERY, KEY, VALUE).shape == (2, 6, 5, 4)


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_no_tensor(name: str) -> None:
    message = refusal(**with_tensor(name, [[1.0]]), error=TypeError)
    assert message == f"{name} must be a tensor, got list"


def test_no_value() -> None:
    # A matrix needs none.
    assert refusal(value=None, error=TypeError) == "value must be a tensor, got NoneType"


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3), (1, 2, 3, 5, 3)])
def test_rank(name: str, shape: tuple[int, ...]) -> None:
    assert refusal(**with_tensor(name, torch.zeros(shape))) == (
        f"{name} must have 4 axes, [batch, heads, sequence, dim], "
        f"got {len(shape)} of shape {list(shape)}"
    )


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_no_floating_point(name: str, dtype: torch.dtype) -> None:
    tensor = with_tensor(name, None)
    wrong = {"query": QUERY, "key": KEY, "value": VALUE}[name].to(dtype)
    assert refusal(**tensor | {name: wrong}) == (
        f"{name} must be a floating-point tensor, got {dtype}"
    )


@pytest.mark.parametrize("name", ["key", "value"])
def test_mixed_dtypes(name: str) -> None:
    wrong = {"key": KEY, "value": VALUE}[name].half()
    assert refusal(**with_tensor(name, wrong)) == (
        f"{name} must have the dtype of query (torch.float32), got torch.float16; "
        f"convert it with {name}.to(query.dtype)"
    )


@pytest.mark.parametrize("name", ["key", "value"])
def test_mixed_devices(name: str) -> None:
    wrong = {"key": KEY, "value": VALUE}[name].to("meta")
    assert refusal(**with_tensor(name, wrong)) == (
        f"{name} must have the device of query (cpu), got meta; "
        f"convert it with {name}.to(query.device)"
    )


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 7, 4), "value must have the batch size of key (2), got 1"),
        ((2, 1, 7, 4), "value must have the number of heads of key (3), got 1"),
        ((2, 3, 5, 4), "value must have the length of key (7), got 5"),
    ],
)
def test_value_and_key_differ(shape: tuple[int, ...], message: str) -> None:
    assert refusal(value=torch.zeros(shape)) == message


def test_batch_of_query_and_key_differ() -> None:
    message = refusal(key=torch.zeros(1, 3, 7, 3), value=torch.zeros(1, 3, 7, 4))
    assert message == "key must have the batch size of query (2), got 1"


@pytest.mark.parametrize("key_heads", [0, 4, 5, 12])
def test_heads_that_make_no_groups(key_heads: int) -> None:
    key, value = torch.zeros(2, key_heads, 7, 3), torch.zeros(2, key_heads, 7, 4)
    assert refusal(key=key, value=value) == (
        "the number of query heads (6) must be a multiple of the number of key heads, "
        f"got {key_heads}"
    )


def test_head_size() -> None:
    message = refusal(key=torch.zeros(2, 3, 7, 4))
    assert message == "key must have the head size of query (3), got 4"


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout(dropout: float) -> None:
    message = refusal(dropout=dropout)
    assert message == f"dropout must be at least 0 and below 1, got {dropout}"


@pytest.mark.parametrize(
    ("positions", "got"),
    [
        (torch.zeros(4, dtype=torch.long), "torch.int64 of shape [4]"),
        (torch.zeros(2, 5, dtype=torch.long), "torch.int64 of shape [2, 5]"),
        (torch.tensor(3), "torch.int64 of shape []"),
        (torch.zeros(5), "torch.float32 of shape [5]"),
        (torch.zeros(5, dtype=torch.bool), "torch.bool of shape [5]"),
        (torch.zeros(5, dtype=torch.complex64), "torch.complex64 of shape [5]"),
    ],
)
def test_positions_of_the_wrong_shape_or_type(positions: Tensor, got: str) -> None:
    message = refusal(positions=positions)
    assert message == f"positions must be integers, one per query, [5], got {got}"


@pytest.mark.parametrize("positions", [1.0, True, "last", [0, 1, 2, 3, 4]])
def test_positions_of_the_wrong_kind(positions: Any) -> None:
    assert refusal(positions=positions, error=TypeError) == (
        "positions must be None, the position of the first query, or a tensor with one position "
        f"per query, got {type(positions).__name__}"
    )


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_mask_is_no_pattern(dtype: torch.dtype) -> None:
    assert refusal(pattern=torch.ones(5, 7, dtype=dtype), error=TypeError) == (
        "pattern must be a Pattern such as causal() or window(before=128), got a tensor of "
        f"{dtype} and shape [5, 7]; "
        "pass regard.patterns.from_mask(mask), where True means may attend"
    )


def test_a_float_mask_is_no_pattern() -> None:
    assert refusal(pattern=torch.zeros(1, 1, 5, 7), error=TypeError) == (
        "pattern must be a Pattern such as causal() or window(before=128), got a tensor of "
        "torch.float32 and shape [1, 1, 5, 7]; pass an additive mask as bias="
    )


@pytest.mark.parametrize(
    ("pattern", "got"),
    [("causal", "str"), (causal, "function causal: call it, causal(…)"), (True, "bool")],
)
def test_other_things_are_no_pattern(pattern: Any, got: str) -> None:
    assert refusal(pattern=pattern, error=TypeError) == (
        f"pattern must be a Pattern such as causal() or window(before=128), got {got}"
    )


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (padding([7, 8]), "padding: sequences must end within the keys (7), got an end at 8"),
        (
            causal() & ~padding([7, 7, 7]),
            "padding: lengths or starts must have one entry per sequence, got 3 for a batch of 2",
        ),
        (
            documents([0] * 5),
            "documents: ids must have one id per key (7), got 5",
        ),
        (
            documents([[0] * 7]),
            "documents: ids must have one row per sequence, got 1 rows for a batch of 2",
        ),
        (
            global_at([7]),
            "global_at: positions must be below the number of keys (7), got 7",
        ),
        (
            neighbours([(0, 9)]),
            "neighbours: positions must be below the number of keys (7), got 9",
        ),
        (
            from_mask(torch.ones(7, 8, dtype=torch.bool)),
            "from_mask: mask must have one column per key (7), got 8",
        ),
    ],
)
def test_patterns_that_do_not_fit(pattern: regard.patterns.Pattern, message: str) -> None:
    assert refusal(pattern=pattern) == message


def test_queries_without_a_document() -> None:
    assert refusal(pattern=documents([0] * 7), positions=4) == (
        "documents: query positions must be from 0 to 6, got 4 to 8"
    )
    assert refusal(pattern=documents([0] * 7), positions=torch.tensor([0, 3, 9, 3, 2])) == (
        "documents: query positions must be from 0 to 6, got 0 to 9"
    )


@pytest.mark.parametrize("shape", [(5, 7), (6, 5, 7), (1, 1, 7, 5), (1, 1, 1, 7), (1, 1, 5, 1)])
def test_a_bias_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    assert refusal(bias=torch.zeros(shape)) == (
        f"bias must have the shape [batch or 1, heads or 1, 5, 7], got {list(shape)}"
    )


@pytest.mark.parametrize(
    "bias",
    [torch.zeros(3, 1, 5, 7), positions_module.from_tensor(torch.zeros(3, 1, 7, 7))],
)
def test_a_bias_for_another_batch(bias: Any) -> None:
    assert refusal(bias=bias) == "bias must have the batch size of query (2), got 3"


@pytest.mark.parametrize(
    "bias",
    [
        torch.zeros(1, 3, 5, 7),
        positions_module.from_tensor(torch.zeros(1, 3, 7, 7)),
        alibi(3),
        Relative(3),
    ],
)
def test_a_bias_for_other_heads(bias: Any) -> None:
    assert refusal(bias=bias) == "bias must have the number of heads of query (6), got 3"


@pytest.mark.parametrize("bias", [0.5, "alibi", alibi, causal()])
def test_a_bias_of_the_wrong_kind(bias: Any) -> None:
    assert refusal(bias=bias, error=TypeError) == (
        "bias must be a Bias such as alibi(heads) or softcap(50.0), or a tensor "
        f"[batch or 1, heads or 1, queries, keys], got {type(bias).__name__}"
    )


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_bias_that_is_not_floating(dtype: torch.dtype) -> None:
    assert refusal(bias=torch.ones(1, 1, 5, 7, dtype=dtype)) == (
        f"bias must be a floating-point tensor, got {dtype}; pass a boolean mask as "
        "pattern=regard.patterns.from_mask(mask)"
    )


@pytest.mark.parametrize("bias", [torch.zeros(1, 1, 5, 7, device="meta"), alibi(6, device="meta")])
def test_a_bias_on_another_device(bias: Any) -> None:
    message = refusal(bias=bias)
    assert message == "bias must be on the device of query (cpu), got meta"


def test_a_tensor_bias_needs_queries_one_after_the_other() -> None:
    assert refusal(bias=torch.zeros(1, 1, 5, 7), positions=torch.tensor([0, 2, 4, 6, 1])) == (
        "a bias tensor needs consecutive query positions; "
        "pass regard.positions.from_tensor(values), which is indexed by position"
    )


@pytest.mark.parametrize("first", [-2, 3])
def test_a_bias_without_a_row_for_a_query(first: int) -> None:
    """A bias is looked up by position, and a position without a row must not read another's."""
    bias = positions_module.from_tensor(torch.zeros(1, 1, 7, 7))
    assert refusal(bias=bias, positions=first) == (
        f"from_tensor: values has rows for positions 0 to 6, got queries at {first} to {first + 4}"
    )
    scattered = torch.tensor([3, first + 4, 2, first, 3])
    assert refusal(bias=bias, positions=scattered) == (
        f"from_tensor: values has rows for positions 0 to 6, got queries at "
        f"{min(first, 2)} to {max(first + 4, 3)}"
    )


def test_a_bias_without_a_column_for_a_key() -> None:
    assert refusal(bias=positions_module.from_tensor(torch.zeros(1, 1, 7, 6))) == (
        "from_tensor: values must have one column per key (7), got 6"
    )


def test_positions_one_after_the_other_are_like_the_first_of_them() -> None:
    query, key, value = torch.randn(1, 2, 5, 3), torch.randn(1, 2, 7, 3), torch.randn(1, 2, 7, 3)
    listed, counted = (
        attend(query, key, value, pattern=causal(), positions=where, bias=torch.ones(1, 1, 5, 7))
        for where in (torch.arange(1, 6, dtype=torch.int32), 1)
    )
    assert torch.equal(listed, counted)


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="is_causal"):
        attend(QUERY, KEY, VALUE, is_causal=True)  # type: ignore[call-arg]
