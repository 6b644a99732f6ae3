"""Results are tensors with names that can be printed, and become arrays and frames."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

from regard.matrix import AttentionMatrix, Mass
from regard.patterns import causal, window
from tests.attention.cases import case_of
from tests.matrix.cases import matrix_of
from tests.matrix.reductions import every_reduction


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
    with pytest.raises(ValueError, match="names must have the same axes, got quantiles, mass"):
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
