"""A matrix times values or vectors, without the matrix."""

from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

import regard
from regard import causal, window
from regard.positions import softcap
from tests.attention.cases import Case, case_of
from tests.matrix.cases import assert_within, dense_weights, matrix_cases, matrix_of, tolerance
from tests.matrix.expected import normal, product_allowance
from tests.strategies import fewer

LOOKS: dict[str, Any] = {
    "all": (),
    "one sequence": 1,
    "one head": (slice(None), -2),
    "one matrix": (1, 3),
    "a part": (slice(None), slice(1, 5), slice(3, 30), slice(2, 39, 3)),
}


def forms(shape: tuple[int, ...], last: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes that broadcast to [*shape, *last]: fewer axes, and axes of size 1."""
    found = [shape[i:] + last for i in range(len(shape) + 1)]
    found += [(1,) * len(shape) + last]
    found += [(*shape[:i], 1, *shape[i + 1 :], *last) for i in range(len(shape))]
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("look", LOOKS)
def test_products_with_values(look: str, dtype: torch.dtype) -> None:
    case = case_of(heads=2, group=3, queries=37, keys=41, pattern=causal(), dtype=dtype)
    where = LOOKS[look]
    part, exact = matrix_of(case)[where], dense_weights(case)[where]
    share, keys = tolerance(case, dtype), exact.shape[-1]
    for form in [(keys,), *forms(tuple(exact.shape[:-2]), (keys, 5))]:
        values = normal(*form, dtype=dtype)
        found = part @ values
        assert found.dtype == part.dtype
        bound = exact @ values.double().abs()
        allowed = product_allowance(bound, values, keys, share, dtype)
        assert_within(found, exact @ values.double(), allowed)


@pytest.mark.parametrize("where", [(), 1, (slice(None), slice(2, 6)), (..., slice(None, 7))])
@pytest.mark.parametrize("value_heads", [1, 2, 3])
def test_products_with_values_of_fewer_heads(where: Any, value_heads: int) -> None:
    case = case_of(heads=2, group=3, keys=41, pattern=causal())
    part, exact = matrix_of(case)[where], dense_weights(case)[where]
    heads, keys = part.shape[-3], part.shape[-1]
    if heads % value_heads:
        with pytest.raises(ValueError, match="values must have the shape"):
            part @ normal(*part.shape[:-3], value_heads, keys, 5)
        return
    values = normal(*part.shape[:-3], value_heads, keys, 5)
    repeated = values.repeat_interleave(heads // value_heads, dim=-3)
    share = tolerance(case, torch.float64)
    allowed = product_allowance(exact @ repeated.abs(), values, keys, share, torch.float64)
    assert_within(part @ values, exact @ repeated, allowed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("look", LOOKS)
def test_products_with_vectors(look: str, dtype: torch.dtype) -> None:
    case = case_of(heads=2, group=3, queries=37, keys=41, pattern=causal(), dtype=dtype)
    where = LOOKS[look]
    part, exact = matrix_of(case)[where], dense_weights(case)[where]
    share, queries = tolerance(case, dtype), exact.shape[-2]
    for form in [(queries,), *forms(tuple(exact.shape[:-2]), (5, queries))]:
        vectors = normal(*form, dtype=dtype)
        found = vectors @ part
        assert found.dtype == part.dtype
        bound = vectors.double().abs() @ exact
        allowed = product_allowance(bound, vectors, queries, share, dtype)
        assert_within(found, vectors.double() @ exact, allowed)


@fewer
@given(matrix_cases())
def test_products_of_any_matrix(drawn: tuple[Case, Tensor | None]) -> None:
    case, sinks = drawn
    matrix, exact = matrix_of(case, sinks), dense_weights(case, sinks)
    share = tolerance(case, torch.float64, sinks)
    values = case.value.repeat_interleave(exact.shape[1] // case.value.shape[1], dim=1)
    bound = exact @ values.abs()
    allowed = product_allowance(bound, values, exact.shape[3], share, torch.float64)
    assert_within(matrix @ case.value, exact @ values, allowed)
    vectors = case.grad.mT
    bound = vectors.abs() @ exact
    allowed = product_allowance(bound, vectors, exact.shape[2], share, torch.float64)
    assert_within(vectors @ matrix, vectors @ exact, allowed)


def test_the_product_with_values_is_the_output_of_attend() -> None:
    case = case_of(heads=2, group=3, pattern=causal() & window(before=5), bias=softcap(2.0))
    found = matrix_of(case) @ case.value
    exact = regard.attend(case.query, case.key, case.value, backend="reference", **case.options)
    repeated = case.value.repeat_interleave(3, dim=1).abs()
    share = tolerance(case, torch.float64)
    bound = dense_weights(case) @ repeated
    # The reference rounds as often.
    assert_within(found, exact, 2 * product_allowance(bound, repeated, 37, share, torch.float64))
