"""What a matrix refuses, and what it says."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from regard import AttentionMatrix
from tests.attention.cases import case_of
from tests.matrix.cases import matrix_of
from tests.matrix.expected import DTYPES


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        (1.0, TypeError, "by ints, slices and an ellipsis, got float; for a list of rows or"),
        ([1, 2], TypeError, r"got list; .* use .rows([...]) or .columns([...])"),
        (True, TypeError, "got bool"),
        (None, TypeError, "got NoneType"),
        ("0", TypeError, "got str"),
        (torch.tensor([0, 1]), TypeError, "got Tensor"),
        (torch.tensor(True), TypeError, "got Tensor"),
        (np.arange(2), TypeError, "got ndarray"),
        ((0, 1, 2, 3, 4), IndexError, "takes up to 4 indices and one ellipsis, got 5"),
        ((..., 0, ...), IndexError, "keys] takes up to 4 indices and one ellipsis, got 3"),
        (
            2,
            IndexError,
            "there are 2 in the batch, counted from 0, got index 2; the axes are [batch, heads, "
            "queries, keys]",
        ),
        ((0, -4), IndexError, "there are 3 heads, counted from 0, got index -4"),
        ((..., 5, slice(None)), IndexError, "there are 5 queries, counted from 0, got index 5"),
        ((..., 7), IndexError, "there are 7 keys, counted from 0, got index 7"),
        (slice(None, None, 0), ValueError, "the step of a slice must be at least 1, got 0"),
        ((..., slice(None, None, -2)), ValueError, "must be at least 1, got -2"),
    ],
)
def test_what_is_no_index(where: Any, error: type[Exception], message: str) -> None:
    matrix = matrix_of(case_of(batch=2, heads=3, queries=5, keys=7))
    with pytest.raises(error, match=re.escape(message).replace(r"\.\*", ".*")):
        _ = matrix[where]


def test_a_part_with_fewer_axes_takes_fewer_indices() -> None:
    part = matrix_of(case_of(queries=5, keys=7))[0, 1]
    message = r"axes \[queries, keys\] takes up to 2 indices and one ellipsis, got 3"
    with pytest.raises(IndexError, match=message):
        _ = part[0, 1, 2]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("listed", "error", "message"),
    [
        ([0.5], TypeError, "indices of {} must be a list of integers, got [0.5]"),
        ([True], TypeError, "indices of {} must be a list of integers, got [True]"),
        ([[0]], TypeError, "indices of {} must be a list of integers, got [[0]]"),
        (3, TypeError, "indices of {} must be a list of integers, got 3"),
        ([0, 7, 8], IndexError, "there are 7 {}, counted from 0, got index 7"),
        ([0, -8], IndexError, "there are 7 {}, counted from 0, got index -8"),
    ],
)
def test_what_is_no_list_of_rows(listed: Any, error: type[Exception], message: str) -> None:
    matrix = matrix_of(case_of(queries=7, keys=7))
    with pytest.raises(error, match=re.escape(message.format("queries"))):
        matrix.rows(listed)
    with pytest.raises(error, match=re.escape(message.format("keys"))):
        matrix.columns(listed)


def test_dense_has_a_limit() -> None:
    matrix = matrix_of(case_of(batch=2, heads=3, queries=1009, keys=1013, dtype=torch.float32))
    size = 2 * 3 * 1009 * 1013 * 4
    with pytest.raises(ValueError, match="would take") as raised:
        matrix.dense(limit=size - 1)
    message = str(raised.value)
    assert "2 batch × 3 heads × 1,009 queries × 1,013 keys would take 24.5 MB" in message
    assert "the limit is 24.5 MB" in message
    assert f"limit={size}" in message
    assert all(way in message for way in ("rows()", "columns()", "pool()", "summarize()"))
    assert matrix.dense(limit=size).shape == (2, 3, 1009, 1013)
    with pytest.raises(ValueError, match=r"2 batch × 3 heads × 2 queries × 1,013 keys would take"):
        matrix.rows([1, 2], limit=1000)
    with pytest.raises(ValueError, match=r"1,009 queries × 1 keys would take .* limit is 999 byte"):
        matrix.columns([1], limit=999)


def test_dense_has_a_limit_of_its_own() -> None:
    length = 16411
    x = torch.zeros(1, 1, length, 1)
    with pytest.raises(ValueError, match=r"16,411 queries × 16,411 keys would take 1\.08 GB"):
        AttentionMatrix(x, x).dense()
    with pytest.raises(ValueError, match=r"16,411 queries × 16,411 keys would take 1\.08 GB"):
        np.asarray(AttentionMatrix(x, x))


def test_an_array_is_always_a_new_one() -> None:
    x = torch.zeros(1, 1, 3, 2)
    with pytest.raises(ValueError, match="copy must be None or True, got False"):
        AttentionMatrix(x, x).__array__(copy=False)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (
            {"lse": torch.zeros(2, 3, 7)},
            ValueError,
            "lse must be a floating-point tensor of shape [2, 3, 5], "
            "got torch.float32 of shape [2, 3, 7]",
        ),
        ({"lse": torch.zeros(2, 3, 5, 1)}, ValueError, "got torch.float32 of shape [2, 3, 5, 1]"),
        (
            {"lse": torch.zeros(2, 3, 5, dtype=torch.long)},
            ValueError,
            "lse must be a floating-point tensor of shape [2, 3, 5], got torch.int64",
        ),
        ({"lse": 0.0}, TypeError, "lse must be a tensor, got float"),
        (
            {"sinks": torch.zeros(2)},
            ValueError,
            "sinks must be a floating-point tensor of shape [3], got torch.float32 of shape [2]",
        ),
        ({"sinks": torch.zeros(())}, ValueError, "got torch.float32 of shape []"),
        (
            {"sinks": torch.zeros(3, dtype=torch.int32)},
            ValueError,
            "sinks must be a floating-point tensor of shape [3], got torch.int32 of shape [3]",
        ),
        ({"sinks": [0.0, 0.0, 0.0]}, TypeError, "sinks must be a tensor, got list"),
        (
            {"lse": torch.zeros(2, 3, 5, device="meta")},
            ValueError,
            "lse must be on the device of query (cpu), got meta",
        ),
        ({"pattern": torch.ones(5, 7)}, TypeError, "pattern must be a Pattern"),
        ({"positions": torch.arange(4)}, ValueError, "positions must be integers, one per query"),
        ({"scale": float("nan")}, ValueError, "scale must be a finite number, got nan"),
    ],
)
def test_arguments_that_do_not_fit(
    more: dict[str, Any], error: type[Exception], message: str
) -> None:
    case = case_of(batch=2, heads=3, queries=5, keys=7)
    with pytest.raises(error, match=re.escape(message)):
        AttentionMatrix(case.query, case.key, **more)


@pytest.mark.usefixtures("unchecked")
def test_values_that_do_not_fit() -> None:
    matrix = matrix_of(case_of(batch=2, heads=3, group=2, queries=5, keys=7))
    for shape in [(5,), (5, 2), (6, 5, 2), (4, 7, 2), (3, 6, 7, 2), (2, 5, 7, 2), (1, 2, 6, 7, 2)]:
        message = "values must have the shape [2 batch, 6 heads, 7 keys, dim] or fewer axes, got ["
        with pytest.raises(ValueError, match=re.escape(message)):
            matrix @ torch.zeros(shape)
    for shape in [(7,), (2, 7), (6, 2, 7), (3, 2, 5), (3, 6, 2, 5), (1, 2, 6, 2, 5)]:
        message = "vectors must have the shape [2 batch, 6 heads, vectors, 5 queries] or fewer axes"
        with pytest.raises(ValueError, match=re.escape(message)):
            torch.zeros(shape) @ matrix
    with pytest.raises(ValueError, match=r"the shape \[7 keys, dim\] or fewer axes, got \[1, 7, 2"):
        matrix[0, 0] @ torch.zeros(1, 7, 2)
    with pytest.raises(ValueError, match=r"the shape \[2 batch, 7 keys, dim\] or fewer"):
        matrix[:, 0] @ torch.zeros(3, 7, 2)
    with pytest.raises(ValueError, match="values must be a floating-point tensor with at least"):
        matrix @ torch.zeros(7, dtype=torch.long)
    with pytest.raises(ValueError, match=r"at least one axis, got torch.float32 of shape \[\]"):
        matrix @ torch.zeros(())
    with pytest.raises(TypeError, match="values must be a tensor, got list"):
        matrix @ [0.0] * 7
    with pytest.raises(TypeError, match="vectors must be a tensor, got list"):
        _ = [0.0] * 5 @ matrix


@pytest.mark.usefixtures("unchecked")
def test_weights_that_are_none() -> None:
    for shape in [(5,), (3, 5, 7), (1, 2, 3, 5, 7)]:
        message = (
            "weights must be a floating-point tensor [batch, heads, queries, keys] or "
            "[queries, keys], "
            f"got torch.float32 of shape {list(shape)}"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            AttentionMatrix.from_weights(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"must be a floating-point .* got torch.int64"):
        AttentionMatrix.from_weights(torch.zeros(1, 2, 3, 5, dtype=torch.long))
    with pytest.raises(TypeError, match="weights must be a tensor, got list"):
        AttentionMatrix.from_weights([[[[1.0]]]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positions must be integers, one per query"):
        AttentionMatrix.from_weights(torch.zeros(1, 2, 3, 5), positions=torch.arange(5))
    with pytest.raises(ValueError, match="a matrix from weights has no log-sum-exp"):
        _ = AttentionMatrix.from_weights(torch.zeros(1, 2, 3, 5)).lse


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("wrong", "bounds"), [(-0.25, "-0.25 to 1"), (1.5, "0 to 1.5")])
def test_weights_that_no_softmax_makes(wrong: float, bounds: str, dtype: torch.dtype) -> None:
    weights = torch.eye(5, dtype=dtype).repeat(2, 3, 1, 1)
    weights[1, 2, 3, 0] = wrong
    with pytest.raises(ValueError, match=rf"must be from 0 to 1, got {bounds}: .* softmax"):
        AttentionMatrix.from_weights(weights)
    assert torch.equal(AttentionMatrix.from_weights(weights, check=False).dense(), weights.float())
    # What is wrong is found beside what isn't known.
    weights[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=rf"got {bounds}: "):
        AttentionMatrix.from_weights(weights)


def test_infinite_weights_are_refused() -> None:
    weights = torch.full((1, 1, 2, 2), torch.inf)
    with pytest.raises(ValueError, match="got inf to inf"):
        AttentionMatrix.from_weights(weights)


def test_weights_that_are_rounded_or_unknown_are_taken() -> None:
    weights = torch.tensor([[-0.0009, 1.0009], [torch.nan, 0.5]])[None, None]
    found = AttentionMatrix.from_weights(weights).dense()
    assert torch.equal(found.nan_to_num(nan=7.0), weights.nan_to_num(nan=7.0))
    assert AttentionMatrix.from_weights(torch.full((1, 1, 2, 2), torch.nan)).dense().isnan().all()
    assert AttentionMatrix.from_weights(torch.zeros(1, 2, 0, 5)).shape == (1, 2, 0, 5)
