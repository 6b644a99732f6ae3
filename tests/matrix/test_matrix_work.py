"""What of a matrix isn't computed, how the rest is cut, and how little memory that takes."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor

from regard import AttentionMatrix, causal, window
from regard.patterns.block_search import KEY_BLOCK
from tests.attention.cases import case_of
from tests.matrix.cases import (
    allowance,
    assert_within,
    dense_lse,
    dense_weights,
    matrix_cases,
    matrix_of,
    tolerance,
)
from tests.matrix.expected import product_allowance
from tests.strategies import fewer

CHUNKS = (64, 64 * 7, 64 * 101)
"""Pairs of a chunk, in place of many more."""


# What isn't computed


class Asked:
    """A bias that changes nothing and remembers which pairs it was asked about."""

    additive = True
    relative = True
    batch_size = None
    num_heads = None
    tensors: tuple[Tensor, ...] = ()

    def __init__(self) -> None:
        self.pairs = 0
        self.farthest = 0
        self.keys: set[int] = set()

    def adjust(
        self, scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        self.pairs += scores.numel()
        self.farthest = max(self.farthest, int((query - key).abs().max()))
        self.keys.update(key.flatten().tolist())
        return scores


def test_tiles_that_nobody_may_look_at_are_not_computed() -> None:
    length, before = 8209, 61
    asked = Asked()
    case = case_of(batch=1, heads=1, queries=length, dtype=torch.float32)
    pattern = causal() & window(before=before)
    matrix = AttentionMatrix(case.query, case.key, pattern=pattern, bias=asked)
    found = matrix @ torch.ones(length)
    assert_within(found, torch.ones(1, 1, length), tolerance(case_of(queries=97), torch.float32))
    # A strip of 512 rows at most needs as many columns, those before, and whole blocks of keys.
    widest = 512 + before + 2 * KEY_BLOCK
    assert asked.pairs <= length * widest
    assert length * widest < length**2 / 10
    assert asked.farthest < widest


def test_one_row_and_one_column_are_computed_alone() -> None:
    length = 509
    case = case_of(batch=2, heads=3, queries=length, pattern=causal() & window(before=7))
    exact, allowed = dense_weights(case)[1, 2], allowance(case, torch.float64)[1, 2]
    asked = Asked()
    matrix = matrix_of(replace(case, bias=asked), lse=dense_lse(case))
    row = matrix[1, 2, 300]
    assert asked.pairs <= 8 + 2 * KEY_BLOCK
    assert asked.keys >= set(range(293, 301))
    assert_within(row, exact[300], allowed[300])
    asked.pairs, asked.keys = 0, set()
    column = matrix[1, 2, :, 300]
    assert asked.pairs <= length
    assert asked.keys == {300}
    assert_within(column, exact[:, 300], allowed[:, 300])


def test_what_is_lazy_computes_nothing() -> None:
    asked = Asked()
    matrix = matrix_of(case_of(bias=asked))
    _ = matrix[1, :, 3:5, ::2][0], matrix.shape, repr(matrix), matrix[..., :7].axes
    assert asked.pairs == 0


def test_the_log_sum_exp_is_computed_once() -> None:
    asked = Asked()
    matrix = matrix_of(case_of(batch=2, heads=3, queries=37, bias=asked))
    _ = matrix.lse
    assert asked.pairs == 2 * 3 * 37 * 37
    _ = matrix.lse, matrix[0].lse
    assert asked.pairs == 2 * 3 * 37 * 37


@fewer
@given(strategies.data())
def test_how_it_is_cut_does_not_matter(data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases())
    exact, allowed = dense_weights(case, sinks), allowance(case, torch.float64, sinks)
    values, share = case.value, tolerance(case, torch.float64, sinks)
    repeated = values.repeat_interleave(exact.shape[1] // values.shape[1], dim=1)
    vectors = case.grad.mT
    usual = matrix_of(case, sinks) @ values, vectors @ matrix_of(case, sinks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "regard.matrix.tile_plan.CPU_CHUNK", data.draw(strategies.sampled_from(CHUNKS))
        )
        patch.setattr("regard.matrix.tile_plan.GEMM_ROWS", 5)
        assert_within(matrix_of(case, sinks).dense(), exact, allowed)
        assert_within(matrix_of(case, sinks).lse, dense_lse(case, sinks), share)
        assert_within(matrix_of(case, sinks)[..., ::3].dense(), exact[..., ::3], allowed[..., ::3])
        products = matrix_of(case, sinks) @ values, vectors @ matrix_of(case, sinks)
    # Both round.
    bound = exact @ repeated.abs()
    off = 2 * product_allowance(bound, values, exact.shape[3], share, torch.float64)
    assert_within(products[0], usual[0], off)
    bound = vectors.abs() @ exact
    off = 2 * product_allowance(bound, vectors, exact.shape[2], share, torch.float64)
    assert_within(products[1], usual[1], off)


# Memory


PROGRAM = """
import torch
import regard
from benchmarks._measure import peak_bytes

length = 262_144
x = torch.randn(1, 2, length, 16)
lse = torch.full((1, 2, length), 12.5)
bias = {bias}
short = x[:, :, :512]
A = regard.AttentionMatrix(short, short, pattern={pattern}, bias=bias, lse=lse[:, :, :512])
A[0, 0, :256, :256].dense(), A[0, 1, 7]
before = peak_bytes()
A = regard.AttentionMatrix(x, x, pattern={pattern}, bias=bias, lse=lse)
tile = A[0, 0, -256:, :256].dense()
row = A[0, 1, length // 2]
column = A[0, 1, :, 5]
assert tile.shape == (256, 256) and row.shape == column.shape == (length,)
assert row.any() and column.any()
print((peak_bytes() - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("pattern", ["None", "regard.causal()"])
@pytest.mark.parametrize("bias", ["None", "regard.positions.alibi(2)"])
def test_a_part_of_a_long_matrix_takes_little_memory(bias: str, pattern: str) -> None:
    # All weights would be 550 GB.
    program = PROGRAM.format(bias=bias, pattern=pattern)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout) < 200
