"""Several reductions in one pass, among them one's own."""

import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix import AttentionMatrix, Entropy, Pool, Reduction, Result, Tile, View, accumulate
from regard.patterns import Pattern, causal, everyone, strided, window
from tests.attention.cases import case_of
from tests.matrix.cases import assert_within, dense_weights, matrix_of, tolerance
from tests.matrix.reductions import every_reduction


@pytest.mark.parametrize("pattern", [everyone(), causal(), window(5) | strided(11), ~everyone()])
@pytest.mark.parametrize("part", [(..., slice(None)), (0, slice(1, 3)), (..., slice(7, 50))])
def test_one_pass_is_as_good_as_many(pattern: Pattern, part: tuple[Any, ...]) -> None:
    case = case_of(heads=2, group=2, queries=131, pattern=pattern, dtype=torch.float32)
    matrix = matrix_of(case)[part]
    # Statistics fused into a tile depend on the reductions, and a log-sum-exp is cached, so that
    # weights are rounded in another way.
    share = tolerance(case, torch.float32) + torch.finfo(torch.float32).eps * 4 * 131
    reductions = every_reduction(131)
    for reduction, found in zip(reductions, matrix.summarize(*reductions), strict=True):
        (alone,) = matrix_of(case)[part].summarize(reduction)
        assert type(found) is type(alone)
        assert found.labels == alone.labels
        for name, values in alone.tensors.items():
            mine = found.tensors[name]
            if not values.is_floating_point():
                assert torch.equal(mine, values)
                continue
            # Sums of numbers above 0: entropies are made of up to log 131 ≈ 5 times a weight.
            largest = max(1.0, float(values.nan_to_num().abs().max())) if values.numel() else 0.0
            assert_within(mine, values, 5 * share * largest)


def test_no_reduction_is_no_result() -> None:
    assert matrix_of(case_of(queries=7)).summarize() == ()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("wrong", "got"), [(Entropy, "the class Entropy"), (Pool, "the class Pool"), ("pool", "str")]
)
def test_what_is_no_reduction_is_refused(wrong: Any, got: str) -> None:
    matrix = matrix_of(case_of(queries=7))
    with pytest.raises(TypeError, match=rf"as Entropy\(\) or Pool\(512\), got {got}$"):
        matrix.summarize(Pool(2), wrong)


def test_results_are_in_the_order_of_the_reductions() -> None:
    matrix = matrix_of(case_of(queries=7))
    results = matrix.summarize(Pool(3), Entropy(), Pool(2), Entropy())
    names = [type(result).__name__ for result in results]
    assert names == ["PoolResult", "EntropyResult", "PoolResult", "EntropyResult"]
    assert [results[n].cells.shape[-1] for n in (0, 2)] == [3, 2]


@dataclass(frozen=True, eq=False, repr=False)
class LargestResult(Result):
    """The largest weight of each head, and its share of a power."""

    weight: Float[Tensor, "*heads"]


@dataclass(frozen=True)
class Largest:
    """A reduction as users write it: the largest weight of each head, to a power."""

    power: int

    facts: ClassVar[tuple[Any, ...]] = ()

    def start(self, view: View) -> tuple[View, Tensor]:
        """Begin with nothing."""
        return view, torch.zeros(view.sizes[:2], dtype=view.source.dtype)

    def update(self, state: tuple[View, Tensor], tile: Tile) -> tuple[View, Tensor]:
        """Look at a tile."""
        mine = tile.heads_of(state[1])
        mine.copy_(torch.maximum(mine, tile.weights.amax(dim=(2, 3)) ** self.power))
        return state

    def merge(self, first: tuple[View, Tensor], second: tuple[View, Tensor]) -> tuple[View, Tensor]:
        """Take the larger of two."""
        return first[0], torch.maximum(first[1], second[1])

    def finish(self, state: tuple[View, Tensor]) -> LargestResult:
        """Give the axes their names."""
        outline = state[0].outline
        return LargestResult(outline.labels(), outline.trim(state[1]))


def test_a_reduction_of_ones_own() -> None:
    reduction = Largest(2)
    assert isinstance(reduction, Reduction)
    case = case_of(queries=131, pattern=causal() & ~window(2))
    expected = dense_weights(case).amax(dim=(2, 3)) ** 2
    allowed = 2 * tolerance(case, torch.float64) + 4 * torch.finfo(torch.float64).eps
    entropy, found = matrix_of(case).summarize(Entropy(), reduction)
    assert_within(found.weight, expected, allowed)
    assert found.axes("weight") == ("batch", "heads")
    assert "2 batch × 3 heads" in repr(found)
    assert list(found.frame().columns) == ["batch", "heads", "weight"]
    assert entropy.nats.shape == (2, 3, 131)
    picked = matrix_of(case)[1, 2].summarize(reduction)[0]
    assert_within(picked.weight, expected[1, 2], allowed)
    assert repr(picked).split() == ["LargestResult", "weight", f"{picked.weight.item():.4g}"]
    states = [accumulate(matrix_of(case).view, [reduction])[0] for _ in range(2)]
    assert_within(reduction.finish(reduction.merge(*states)).weight, expected, allowed)


def test_inputs_that_want_a_gradient() -> None:
    case = case_of(queries=37, bias=torch.randn(1, 3, 37, 37, requires_grad=True))
    sinks = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for x in (case.query, case.key):
        x.requires_grad_()
    matrix = matrix_of(case, sinks)
    for part in (matrix, matrix[..., 3:11]):
        for found in part.summarize(*every_reduction(37)):
            assert not any(x.requires_grad for x in found.tensors.values())
    weights = torch.rand(2, 3, 7, 7, requires_grad=True)
    for found in AttentionMatrix.from_weights(weights).summarize(*every_reduction(7)):
        assert not any(x.requires_grad for x in found.tensors.values())
    assert case.query.requires_grad
    assert case.query.grad is None


PROGRAM = """
import torch
import regard
from benchmarks._measure import peak_bytes
from regard.matrix import *

reductions = [Entropy(), EffectiveKeys(), Received(), Offsets(5), Distance(), Pool(128),
              Pool(128, "max"), TopKeys(3), Edges(0.5), Edges(1e-9), Hits(regard.window(3)),
              Mass({{"even": torch.arange({length}) % 2 == 0, "near": regard.window(3)}})]
x = torch.randn(1, 2, {length}, 16)
regard.AttentionMatrix(x[:, :, :64], x, pattern=regard.causal()).summarize(*reductions)
before = peak_bytes()
regard.AttentionMatrix(x, x, pattern=regard.causal()).summarize(*reductions)
print((peak_bytes() - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_matrix_is_never_whole() -> None:
    # The weights of both heads would be 512 MB, or half of that for one of them.
    program = PROGRAM.format(length=8192)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout) < 200
