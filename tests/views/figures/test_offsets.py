"""Mass by the offset from query to key."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from regard.views.figures.offsets import offsets
from tests.views.figures.examples import call_of, causal_matrix, dense, matrix
from tests.views.figures.layout import check_files, check_layout, labels


def shares(weights: torch.Tensor, reach: int) -> np.ndarray:
    """Return the share of each offset, from the definition, [heads, 2 · reach + 1]."""
    count = weights.shape[-1]
    found = [weights.diagonal(offset, 1, 2).sum(dim=1) for offset in range(-reach, reach + 1)]
    return torch.stack(found, dim=1).numpy() / count


def test_one_head_is_bars() -> None:
    given = causal_matrix(20)
    figure = offsets(call_of(given), head=1, reach=4)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    expected = shares(dense(given), 4)[1]
    np.testing.assert_allclose(heights, expected, atol=1e-12)
    assert figure.axes[0].get_title() == f"layer 5, head 1: {1 - expected.sum():.0%} beyond ±4"
    assert figure.axes[0].get_xlabel() == "offset, key − query"
    check_layout(figure)


@pytest.mark.parametrize("heads", [2, 6])
def test_few_heads_are_lines_with_a_legend(heads: int) -> None:
    given = matrix(20, heads=heads)
    figure = offsets(given, reach=4)
    expected = shares(dense(given), 4)
    drawn = np.array([line.get_ydata() for line in figure.axes[0].lines])
    np.testing.assert_allclose(drawn, expected, atol=1e-12)
    named = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    beyond = 1 - expected.sum(axis=1)
    assert named == [f"head {head}: {share:.0%}" for head, share in enumerate(beyond)]
    check_layout(figure)


def test_many_heads_are_a_picture_with_a_column_for_what_is_beyond() -> None:
    given = matrix(20, heads=9)
    figure = offsets(given, reach=4)
    image = np.asarray(figure.axes[0].images[0].get_array().filled(np.nan))
    expected = shares(dense(given), 4)
    np.testing.assert_allclose(image[:, :9], expected, atol=1e-12)
    np.testing.assert_allclose(image[:, 10], 1 - expected.sum(axis=1), atol=1e-12)
    assert labels(figure.axes[0], "x")[-1] == "beyond"
    assert labels(figure.axes[0], "y") == [str(head) for head in range(9)]
    check_layout(figure)


@pytest.mark.parametrize("reach", [1, 16, 100])
def test_ticks_can_be_read(reach: int) -> None:
    check_layout(offsets(matrix(20, heads=9), reach=reach))
    check_layout(offsets(matrix(20), reach=reach, head=0))


def test_calls_are_layers(tmp_path: Path) -> None:
    calls = [call_of(causal_matrix(20), f"layers.{layer}") for layer in range(4)]
    every = offsets(calls, reach=3)
    assert labels(every.axes[0], "y") == ["0", "1", "2", "3"]
    assert every.axes[0].images[0].get_array().shape == (12, 9)
    check_layout(every)
    one = offsets(calls, head=1, reach=3)
    assert one.axes[0].get_legend().get_texts()[3].get_text().startswith("layer 3, head 1: ")
    check_layout(one)
    check_files(one, tmp_path)


def test_it_draws_where_it_is_told_to() -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert offsets(matrix(9), head=0, ax=left) is figure
    assert not right.patches


@pytest.mark.usefixtures("unchecked")
def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="offsets need self-attention"):
        offsets(call_of(matrix(4), kind="cross"))
    with pytest.raises(ValueError, match="there are no calls"):
        offsets([])
    with pytest.raises(ValueError, match="reach must be at least 1, got 0"):
        offsets(matrix(4), reach=0)
