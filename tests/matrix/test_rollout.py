"""Attention through several layers, held against the product of all matrices."""

import re
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard import AttentionMatrix, causal, window
from tests.attention.cases import case_of, lse_dtype
from tests.matrix.cases import assert_within, dense_weights, matrix_of
from tests.matrix.expected import NOBODY, dense_rollout, rollout_tolerance

HEADS: dict[str, str | Tensor] = {
    "mean": "mean",
    "max": "max",
    "min": "min",
    "weights": torch.tensor([0.5, 0.125, 0.25, 0.125]),
}


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_rollout(num_layers: int, heads: str, sunk: bool, dtype: torch.dtype) -> None:
    patterns = [causal(), window(before=5, after=5), causal()][:num_layers]
    layers = [
        case_of(heads=2, group=2, queries=67, pattern=pattern, seed=seed, dtype=dtype)
        for seed, pattern in enumerate(patterns)
    ]
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0]).to(dtype) if sunk else None
    matrices = [matrix_of(case, sinks) for case in layers]
    exact = [dense_weights(case, sinks) for case in layers]
    off, tokens, how = rollout_tolerance(layers, sinks), [66, 5, -1, 5, -67], HEADS[heads]
    for residual in (0.0, 0.5, 0.75):
        expected = dense_rollout(exact, tokens, residual, how)
        found = regard.rollout(matrices, tokens=tokens, residual=residual, heads=how)
        assert found.dtype == lse_dtype(dtype)
        assert_within(found, expected, off)
        alone = regard.rollout(
            [m[1] for m in matrices], tokens=tokens, residual=residual, heads=how
        )
        assert_within(alone, expected[1], off)
    default = regard.rollout(matrices, tokens=torch.tensor(tokens), heads=how)
    assert_within(default, dense_rollout(exact, tokens, 0.5, how), off)


def test_rollout_of_views_and_of_weights() -> None:
    layers = [case_of(heads=4, queries=67, seed=seed) for seed in range(2)]
    where = (slice(None), slice(1, 4), slice(3, 50), slice(3, 50))
    exact = [dense_weights(case)[where] for case in layers]
    expected = dense_rollout(exact, [3, -2], 0.5, "mean")
    off = rollout_tolerance(layers)
    parts = [matrix_of(case)[where] for case in layers]
    assert_within(regard.rollout(parts, tokens=[3, -2]), expected, off)
    written = [AttentionMatrix.from_weights(x) for x in exact]
    assert_within(regard.rollout(written, tokens=[3, -2]), expected, off)
    for how in ("max", "min"):
        expected = dense_rollout(exact, [3, -2], 0.5, how)
        assert_within(regard.rollout(parts, tokens=[3, -2], heads=how), expected, off)


def test_a_rollout_past_attention_stays_where_it_is() -> None:
    matrices = [matrix_of(case_of(queries=7, pattern=causal()))] * 3
    found = regard.rollout(matrices, tokens=[3, -1], residual=1.0)
    assert torch.equal(found, torch.eye(7, dtype=torch.float64)[[3, 6]].expand(2, 2, 7))


def test_a_rollout_of_empty_rows_keeps_the_residual_alone() -> None:
    matrices = [matrix_of(case_of(queries=7, pattern=NOBODY))] * 2
    for how in ("mean", "max", "min"):
        found = regard.rollout(matrices, tokens=[3], residual=0.5, heads=how)
        assert torch.equal(found, 0.25 * torch.eye(7, dtype=torch.float64)[[3]].expand(2, 1, 7))


def test_a_rollout_through_layers_of_one_batch_and_head() -> None:
    case = case_of(batch=1, heads=1, queries=1)
    found = regard.rollout([matrix_of(case)] * 2, tokens=[0])
    off = rollout_tolerance([case] * 2)
    assert_within(found, torch.ones(1, 1, 1, dtype=torch.float64), off)


def test_a_rollout_takes_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The function hides its module.
    module = sys.modules["regard.matrix.rollout"]
    monkeypatch.setattr(module, "BUDGET", 2 * 3 * 67 * 8 * 4 * 5)
    layers = [case_of(queries=67, pattern=causal(), seed=seed) for seed in range(2)]
    exact = [dense_weights(case) for case in layers]
    for how in ("max", "min"):
        found = regard.rollout([matrix_of(case) for case in layers], tokens=[66, 30], heads=how)
        expected = dense_rollout(exact, [66, 30], 0.5, how)
        assert_within(found, expected, rollout_tolerance(layers))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"matrices": []}, ValueError, "matrices must have at least one layer, got none"),
        ({"residual": 1.5}, ValueError, "residual must be from 0 to 1, got 1.5"),
        ({"residual": -0.1}, ValueError, "residual must be from 0 to 1, got -0.1"),
        ({"residual": float("nan")}, ValueError, "residual must be from 0 to 1, got nan"),
        ({"tokens": [0, 7]}, IndexError, "there are 7 tokens, counted from 0, got index 7"),
        ({"tokens": [-8]}, IndexError, "there are 7 tokens, counted from 0, got index -8"),
        ({"tokens": [0.5]}, TypeError, "tokens must be a list of integers, got [0.5]"),
        ({"tokens": 3}, TypeError, "tokens must be a list of integers, got 3"),
        (
            {"heads": "median"},
            ValueError,
            "heads must be 'mean', 'max', 'min' or a tensor, got 'median'",
        ),
        (
            {"heads": torch.ones(2)},
            ValueError,
            "heads must have one weight for each of 3 heads, got torch.float32 of shape [2]",
        ),
        (
            {"heads": torch.ones(3, dtype=torch.long)},
            ValueError,
            "heads must have one weight for each of 3 heads, got torch.int64 of shape [3]",
        ),
    ],
)
def test_what_a_rollout_refuses(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"matrices": [matrix_of(case_of(queries=7))] * 2, "tokens": [0]} | change
    with pytest.raises(error, match=re.escape(message)):
        regard.rollout(**arguments)


@pytest.mark.usefixtures("unchecked")
def test_layers_that_do_not_fit_together() -> None:
    square = matrix_of(case_of(queries=7))
    with pytest.raises(ValueError, match=r"as many queries as keys, got AttentionMatrix\(.* at 1"):
        regard.rollout([square, matrix_of(case_of(queries=5, keys=7))], tokens=[0])
    with pytest.raises(ValueError, match=r"must have the axes heads, queries and keys.* at 0"):
        regard.rollout([square[0, 0]], tokens=[0])
    with pytest.raises(ValueError, match="must have the axes heads"):
        regard.rollout([square[:, 0]], tokens=[0])
    message = r"matrices must have one shape, got \[2, 3, 5, 5\] at 1 and \[2, 3, 7, 7\] at 0"
    with pytest.raises(ValueError, match=message):
        regard.rollout([square, matrix_of(case_of(queries=5))], tokens=[0])
    with pytest.raises(ValueError, match=r"got \[3, 7, 7\] at 1 and \[2, 3, 7, 7\] at 0"):
        regard.rollout([square, square[0]], tokens=[0])
    with pytest.raises(
        TypeError, match=r"got Tensor at 1; for a tensor use AttentionMatrix.from_weights\(tensor\)"
    ):
        regard.rollout([square, square.dense()], tokens=[0])  # type: ignore[list-item]
