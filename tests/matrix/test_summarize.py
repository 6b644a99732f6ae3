"""Several reductions in one pass, and what results are: tensors with names that can be printed."""

import io
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix import (
    AttentionMatrix,
    Distance,
    Edges,
    EffectiveKeys,
    Entropy,
    Hits,
    Mass,
    Offsets,
    Pool,
    Received,
    Reduction,
    Result,
    Tile,
    TopKeys,
    View,
    accumulate,
    progress,
)
from regard.matrix import tiles as tiling
from regard.patterns import Pattern, causal, everyone, strided, window
from tests.attention.cases import case_of
from tests.matrix.cases import assert_within, dense_weights, matrix_of, tolerance


def every_reduction(num_keys: int) -> list[Any]:
    """Return a reduction of each kind."""
    stops = torch.arange(num_keys) % 3 == 0
    return [
        Entropy(),
        EffectiveKeys(),
        Received(),
        Offsets(2),
        Distance(),
        Pool(7),
        Pool(7, "max"),
        TopKeys(2),
        Edges(0.1),
        Mass({"stops": stops, "near": window(2)}),
        Hits(strided(3)),
    ]


@pytest.mark.parametrize("pattern", [everyone(), causal(), window(5) | strided(11), ~everyone()])
@pytest.mark.parametrize("part", [(..., slice(None)), (0, slice(1, 3)), (..., slice(7, 50))])
def test_one_pass_is_as_good_as_many(pattern: Pattern, part: tuple[Any, ...]) -> None:
    case = case_of(heads=2, group=2, queries=131, pattern=pattern, dtype=torch.float32)
    matrix = matrix_of(case)[part]
    # What is found out on the way differs with what is asked for, and a log-sum-exp is kept, so
    # that weights are rounded in another way.
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


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("part", [(..., slice(None)), (0,), (0, 2), (..., slice(3, 11))])
def test_results_print(number: int, part: tuple[Any, ...]) -> None:
    matrix = matrix_of(case_of(queries=13, keys=17, pattern=causal()))[part]
    (found,) = matrix.summarize(every_reduction(17)[number])
    lines = repr(found).splitlines()
    assert lines[0] == type(found).__name__
    assert len(lines) == 1 + len(found.tensors)
    for line, (name, values) in zip(lines[1:], found.tensors.items(), strict=True):
        assert line.split()[0] == name
        axes = zip(values.shape, found.axes(name), strict=True)
        assert " × ".join(f"{size} {axis}" for size, axis in axes) in line


def test_a_result_in_print() -> None:
    weights = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    found = AttentionMatrix.from_weights(weights[None, None]).received()
    lines = [line.split() for line in repr(found).splitlines()]
    assert lines[0] == ["ReceivedResult"]
    assert " ".join(lines[1]) == "mean 1 batch × 1 heads × 2 keys 0.25 to 0.75, mean 0.5"
    assert " ".join(lines[2]) == "queries 1 batch × 1 heads × 2 keys 2 to 2"


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("sizes", [(0, 3, 5, 7), (2, 3, 0, 7), (2, 3, 5, 0)])
def test_empty_results_print(number: int, sizes: tuple[int, int, int, int]) -> None:
    batch, heads, queries, keys = sizes
    query, key = torch.zeros(batch, heads, queries, 4), torch.zeros(batch, heads, keys, 4)
    (found,) = AttentionMatrix(query, key, positions=0).summarize(every_reduction(keys)[number])
    assert len(repr(found).splitlines()) == 1 + len(found.tensors)


@pytest.mark.parametrize("number", range(11))
def test_nan_prints(number: int) -> None:
    case = case_of(queries=7)
    case.query[:] = torch.nan
    (found,) = matrix_of(case).summarize(every_reduction(7)[number])
    assert len(repr(found).splitlines()) == 1 + len(found.tensors)


def test_print_says_how_many_are_nan() -> None:
    case = case_of(batch=1, heads=1, queries=7)
    case.query[0, 0, 2] = torch.nan
    assert repr(matrix_of(case).entropy()).endswith(", 1 NaN")
    case.query[:] = torch.nan
    assert repr(matrix_of(case).entropy()).endswith("all NaN")
    assert repr(matrix_of(case)[..., :0, :].entropy()).endswith("empty")


@pytest.mark.parametrize("number", range(11))
def test_arrays_by_name(number: int) -> None:
    (found,) = matrix_of(case_of(queries=7)).summarize(every_reduction(7)[number])
    arrays = found.numpy()
    assert arrays.keys() == found.tensors.keys()
    for name, values in found.tensors.items():
        assert isinstance(arrays[name], np.ndarray)
        assert arrays[name].shape == values.shape
        np.testing.assert_array_equal(arrays[name], values.numpy())


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("part", [(..., slice(None)), (0, 2), (..., slice(3, 11), slice(5, None))])
def test_every_result_is_a_frame(number: int, part: tuple[Any, ...]) -> None:
    matrix = matrix_of(case_of(queries=13, keys=17, pattern=causal()))[part]
    (found,) = matrix.summarize(every_reduction(17)[number])
    for name in found.tensors:
        assert {name, *found.axes(name)} <= set(found.frame(name).columns)
    most = max((found.axes(name) for name in found.tensors), key=len)
    assert set(most) <= set(found.frame().columns)


def test_frame_of_tensors_with_different_axes() -> None:
    found = matrix_of(case_of(queries=13)).distance()
    assert list(found.frame().columns) == ["batch", "heads", "shares", "mean", "quantiles"]
    assert list(found.frame("mass").columns) == ["batch", "heads", "distances", "mass"]
    with pytest.raises(ValueError, match="quantiles, mass have different axes"):
        found.frame("quantiles", "mass")


def test_frame_of_entropy() -> None:
    found = matrix_of(case_of(queries=13, keys=17))[:, 1:, 3:11].entropy()
    frame = found.frame()
    assert list(frame.columns) == ["batch", "heads", "queries", "nats"]
    assert len(frame) == 2 * 2 * 8
    one = frame[(frame.batch == 1) & (frame.heads == 2) & (frame.queries == 5)]
    assert one.nats.tolist() == [found.nats[1, 1, 2].item()]


def test_frame_of_one_head() -> None:
    found = matrix_of(case_of(queries=13))[0, 2].entropy()
    assert list(found.frame().columns) == ["queries", "nats"]
    assert found.frame().nats.tolist() == found.nats.tolist()


def test_frame_of_offsets() -> None:
    found = matrix_of(case_of(queries=13)).offsets(2)
    frame = found.frame()
    assert list(frame.columns) == ["batch", "heads", "offsets", "near", "beyond", "first", "rows"]
    assert len(frame) == 2 * 3 * 5
    assert frame.offsets.tolist() == [-2, -1, 0, 1, 2] * 6
    mine = frame[(frame.batch == 1) & (frame.heads == 2)]
    assert mine.near.tolist() == found.near[1, 2].tolist()
    assert mine.beyond.tolist() == [found.beyond[1, 2].item()] * 5
    assert mine.rows.tolist() == [13] * 5


def test_frame_of_top_keys() -> None:
    found = matrix_of(case_of(queries=13)).top(3)
    frame = found.frame()
    assert list(frame.columns) == ["batch", "heads", "queries", "ranks", "keys", "weights"]
    assert len(frame) == 2 * 3 * 13 * 3
    best = frame[(frame.batch == 1) & (frame.heads == 0) & (frame["ranks"] == 1)]
    assert best["keys"].tolist() == found.keys[1, 0, :, 0].tolist()
    assert best["weights"].tolist() == found.weights[1, 0, :, 0].tolist()


def test_frame_of_edges() -> None:
    found = matrix_of(case_of(queries=13)).edges(threshold=0.2)
    frame = found.frame()
    assert list(frame.columns) == ["edges", "batch", "heads", "queries", "keys", "weights"]
    assert len(frame) == found.total > 0
    for name in ("batch", "heads", "queries", "keys", "weights"):
        assert frame[name].tolist() == getattr(found, name).tolist()


def test_frame_of_a_picture() -> None:
    found = matrix_of(case_of(queries=13, keys=17)).pool(5)
    frame = found.frame()
    assert list(frame.columns) == ["batch", "heads", "cell_rows", "cell_columns", "cells"]
    assert len(frame) == 2 * 3 * 5 * 5
    one = frame[
        (frame.batch == 1) & (frame.heads == 2) & (frame.cell_rows == 6) & (frame.cell_columns == 8)
    ]
    assert one.cells.tolist() == [found.cells[1, 2, 2, 2].item()]


def test_frame_of_mass_has_the_names_of_the_groups() -> None:
    stops = torch.arange(13) % 5 == 0
    mass = Mass({"stops": stops, "near": window(2)})
    (found,) = matrix_of(case_of(queries=13))[0, 1].summarize(mass)
    frame = found.frame()
    assert frame.groups.tolist() == ["stops", "near"]
    assert frame.share.tolist() == found.share.tolist()


def test_a_frame_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    found = matrix_of(case_of(queries=7)).entropy()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'need pandas: pip install "regard\[frame\]"'):
        found.frame()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def in_terminal(patch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal, and return what is written to it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        patch.delenv(name, raising=False)
    patch.setenv("TERM", "xterm")
    stream = Terminal()
    patch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def long_work(monkeypatch: pytest.MonkeyPatch) -> AttentionMatrix:
    """Return a matrix of many tiles, which takes long by a short measure."""
    monkeypatch.setattr(progress, "SOON", 0.0)
    monkeypatch.setattr(tiling, "_ROWS", 7)
    monkeypatch.setattr(tiling, "_CPU_CHUNK", 499)
    return matrix_of(case_of(queries=67))


def test_a_bar_is_shown_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    matrix_of(case_of(queries=67)).summarize(Entropy(), progress=True)
    assert "rows of attention" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_a_bar_that_was_asked_for_is_shown_outside_of_terminals(
    long_work: AttentionMatrix, capfd: pytest.CaptureFixture[str]
) -> None:
    long_work.summarize(Entropy(), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "rows of attention" in err


def test_a_bar_is_shown_for_long_work(
    monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix
) -> None:
    terminal = in_terminal(monkeypatch)
    long_work.entropy()
    assert "rows of attention" in terminal.getvalue()


def test_no_bar_is_shown_if_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix
) -> None:
    terminal = in_terminal(monkeypatch)
    long_work.summarize(Entropy(), progress=False)
    assert terminal.getvalue() == ""


def test_no_bar_is_shown_for_short_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    matrix_of(case_of(queries=7)).entropy()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("progress", [None, False])
def test_nothing_is_printed_outside_of_terminals(
    long_work: AttentionMatrix, capfd: pytest.CaptureFixture[str], progress: bool | None
) -> None:
    long_work.summarize(Entropy(), progress=progress)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [True, None, False])
def test_a_bar_changes_no_number(
    monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix, progress: bool | None
) -> None:
    in_terminal(monkeypatch)
    (found,) = long_work.summarize(Pool(5), progress=progress)
    case = case_of(queries=67)
    (expected,) = matrix_of(case).summarize(Pool(5), progress=False)
    assert torch.equal(found.cells, expected.cells)


def test_a_bar_without_rich(monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix) -> None:
    for name in ("rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'needs rich: pip install "regard\[progress\]"'):
        long_work.summarize(Entropy(), progress=True)
    assert long_work.summarize(Entropy())[0].nats.shape == (2, 3, 67)


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
              Pool(128, "max"), TopKeys(3), Edges(0.5), Hits(regard.window(3)),
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
