"""Who looks at whom, as arcs over the text."""

from pathlib import Path

import matplotlib.style
import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from regard import AttentionMatrix
from regard.views.figures.graph import graph
from regard.views.figures.strongest import strongest_pairs
from tests.views.figures.examples import STRANGE, call_of, causal_matrix, dense, matrix, words
from tests.views.figures.layout import check_files, check_layout


def lines(figure: Figure) -> list[np.ndarray]:
    """Return the points of each arc or line."""
    drawn = figure.axes[0].collections[0]
    assert isinstance(drawn, PathCollection)
    return [path.vertices for path in drawn.get_paths()]


def written(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("top", [1, 3, None])
@pytest.mark.parametrize("head", [None, 1])
def test_pairs_are_the_strongest(head: int | None, top: int | None) -> None:
    given = causal_matrix(23)
    weights = dense(given).mean(dim=0) if head is None else dense(given)[head]
    part = given[0] if head is None else given[0, head]
    found = strongest_pairs(part, threshold=0.1, top=top, most=1_000)
    kept = weights >= 0.1
    if top is not None:
        kept &= weights >= weights.topk(top, dim=1).values[:, -1:]
    expected = {(int(i), int(j)) for i, j in kept.nonzero()}
    assert set(zip(found.queries.tolist(), found.keys.tolist(), strict=True)) == expected
    np.testing.assert_allclose(found.weights, weights[found.queries, found.keys], atol=1e-12)
    assert (np.diff(found.weights) <= 0.0).all()
    few = strongest_pairs(part, threshold=0.1, top=top, most=5)
    assert (len(few.weights), few.total) == (5, len(expected))


@pytest.mark.parametrize("heads", [1, 2])
def test_all_pairs_are_counted(heads: int) -> None:
    """Of a matrix with more pairs than a reduction keeps, too."""
    part = AttentionMatrix(torch.randn(1, 2, 400, 8), torch.randn(1, 2, 400, 8))[0]
    found = strongest_pairs(part if heads == 2 else part[0], threshold=1e-9, top=None, most=7)
    assert (len(found.weights), found.total) == (7, 400 * 400)


def test_pairs_of_a_part_stand_where_they_stand_in_it() -> None:
    given = causal_matrix(30)
    found = strongest_pairs(given[0, 0, 20:30, 20:30], threshold=0.05, top=2, most=100)
    weights = dense(given)[0, 20:30, 20:30]
    np.testing.assert_allclose(found.weights, weights[found.queries, found.keys], atol=1e-12)
    last = strongest_pairs(given[0, 0, 25:, :], threshold=0.05, top=None, most=100)
    assert last.queries.min() >= 25


def test_arcs_above_look_back_and_arcs_below_look_ahead() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.7, 0.3, 0.0]])[None, None]
    figure = graph(AttentionMatrix.from_weights(weights), ["a", "b", "c"])
    arcs = lines(figure)
    assert len(arcs) == 3
    back = [arc for arc in arcs if arc[0, 0] > arc[-1, 0]]
    assert all((arc[:, 1] > 0.0).all() for arc in back)
    assert all((arc[:, 1] < 0.0).all() for arc in arcs if arc[0, 0] < arc[-1, 0])
    assert len(back) == 2
    dots = figure.axes[0].collections[1]
    assert len(dots.get_offsets()) == 1
    assert "above: looks back" in figure.axes[0].get_xlabel()
    assert figure.axes[0].collections[0].get_linewidths()[0] == max(
        figure.axes[0].collections[0].get_linewidths()
    )


@pytest.mark.parametrize("count", [1, 8, 24, 60])
def test_tokens_are_written(count: int) -> None:
    figure = graph(causal_matrix(count), words(count), head=0)
    assert written(figure) == words(count)
    assert figure.get_figwidth() == (3.4 if count <= 24 else 7.0)
    check_layout(figure)


def test_long_texts_have_positions_and_fewer_arcs() -> None:
    figure = graph(causal_matrix(300), words(300), head=0)
    assert written(figure)[:2] == ["0", "50"]
    assert "weights of 0.3 to 1" in figure.axes[0].get_xlabel().replace("\n", " · ")
    assert len(lines(figure)) < 300
    check_layout(figure)


def test_the_title_says_what_is_shown() -> None:
    assert (
        graph(call_of(matrix(5)), words(5)).axes[0].get_title("left") == "layer 5, mean of 3 heads"
    )
    assert graph(matrix(5)[0, 2], words(5)).axes[0].get_title("left") == "head 2"


def test_several_calls_are_floors() -> None:
    given = causal_matrix(8)
    calls = [call_of(given, f"layers.{layer}") for layer in range(3)]
    figure = graph(calls, words(8), head=1, top=2)
    assert written(figure) == words(8) * 2
    ys = sorted({round(float(y), 6) for line in lines(figure) for y in line[:, 1]})
    assert len(ys) == 4
    assert all(line[0, 1] > line[1, 1] for line in lines(figure))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0", "1", "2"]
    check_layout(figure)
    check_layout(graph([causal_matrix(300)] * 2))


def test_nothing_may_reach_the_threshold() -> None:
    figure = graph(
        AttentionMatrix.from_weights(torch.full((1, 1, 9, 9), 1 / 9)), words(9), threshold=0.5
    )
    assert figure.axes[0].get_xlabel().startswith("no weight reaches 0.5")
    check_layout(figure)


def test_strange_tokens(tmp_path: Path) -> None:
    figure = graph(matrix(len(STRANGE)), STRANGE, head=0)
    assert written(figure)[:2] == ["$x$", "<script>"]
    check_layout(figure)
    check_files(figure, tmp_path, "$x$", "<script>")


def test_it_draws_where_it_is_told_to() -> None:
    figure = Figure(figsize=(5, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert graph(matrix(6), words(6), head=0, ax=left) is figure
    assert not right.collections
    with matplotlib.style.context("dark_background"):
        check_layout(graph(matrix(6), words(6), head=0))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("what", "given", "message"),
    [
        (matrix(8), {"tokens": words(7)}, r"as many tokens as keys \(8\), got 7"),
        (matrix(8), {"threshold": 0.0}, "threshold must be above 0, got 0.0"),
        (matrix(8), {"top": 0}, "top must be at least 1, got 0"),
        (call_of(matrix(8), kind="cross"), {}, "this call is cross-attention"),
        (matrix(8)[:, :, :4, 4:], {}, "needs queries that are among the keys"),
        ([], {}, "there are no calls"),
    ],
)
def test_errors_say_what_is_wrong(what: object, given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph(what, **given)
