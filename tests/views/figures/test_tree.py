"""A sentence as a tree."""

from itertools import combinations
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from regard.views.figures.spanning import between_words, is_special, spanning_tree
from regard.views.figures.tree import tree
from tests.views.figures.examples import STRANGE, call_of, causal_matrix, dense, matrix, words
from tests.views.figures.layout import check_files, check_layout


def written(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_no_other_tree_weighs_more() -> None:
    weights = dense(matrix(5))[0]
    both = torch.maximum(weights, weights.T)
    pairs = list(combinations(range(5), 2))

    def joins(links: tuple[tuple[int, int], ...]) -> bool:
        groups = list(range(5))
        for a, b in links:
            groups = [groups[a] if group == groups[b] else group for group in groups]
        return len(set(groups)) == 1

    heaviest = max(
        sum(both[pair].item() for pair in links) for links in combinations(pairs, 4) if joins(links)
    )
    found = spanning_tree(weights)
    assert joins(tuple((one.first, one.second) for one in found))
    assert sum(one.weight for one in found) == pytest.approx(heaviest, abs=1e-6)


def test_words_that_never_look_at_each_other_remain_apart() -> None:
    assert spanning_tree(torch.eye(3)) == []


def test_words_give_means_and_get_sums() -> None:
    weights = dense(matrix(5))[0]
    found = between_words(weights, [None, 4, 4, 2, None])
    assert found.shape == (2, 2)
    torch.testing.assert_close(found[0, 1], weights[[1, 2], 3].mean())
    torch.testing.assert_close(found[1, 0], weights[3, [1, 2]].sum())


@pytest.mark.parametrize("count", [1, 2, 8, 40, 100])
def test_tokens_and_weights_are_written(count: int) -> None:
    figure = tree(causal_matrix(count), words(count), head=0)
    shown = written(figure)
    if count <= 40:
        assert shown[:count] == words(count)
    numbers = shown[-(count - 1) :] if count > 1 else []
    links = spanning_tree(dense(causal_matrix(count))[0])
    assert numbers == [f"{one.weight:.2f}" for one in links]
    assert "max(A, Aᵀ)" in figure.axes[0].get_xlabel()
    check_layout(figure)


def test_special_tokens_are_left_out_unless_wanted() -> None:
    tokens = ["[CLS]", "an", "app", "##le", "[SEP]"]
    assert written(tree(matrix(5), tokens))[:3] == ["an", "app", "le"]
    assert written(tree(matrix(5), tokens, special=True))[:5] == [
        "[CLS]",
        "an",
        "app",
        "le",
        "[SEP]",
    ]
    of_words = tree(matrix(5), tokens, words=[None, 0, 1, 1, None])
    assert written(of_words)[:2] == ["an", "apple"]
    assert len(written(of_words)) == 3
    assert not is_special("<script>")


def test_strange_tokens(tmp_path: Path) -> None:
    figure = tree(call_of(matrix(len(STRANGE))), STRANGE)
    assert figure.axes[0].get_title("left") == "layer 5, mean of 3 heads"
    check_layout(figure)
    check_files(figure, tmp_path, "$x$", "<script>")


def test_it_draws_where_it_is_told_to() -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(2, 1)
    assert tree(matrix(5), words(5), head=0, ax=right) is figure
    assert not left.texts


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("size", "given", "message"),
    [
        (8, {"tokens": words(7)}, r"as many tokens as keys \(8\), got 7"),
        (8, {"tokens": words(8), "words": [1]}, r"one entry per token \(8\), got 1"),
        (101, {"tokens": words(101)}, "up to 100 tokens, got 101: take a slice"),
    ],
)
def test_errors_say_what_is_wrong(size: int, given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tree(matrix(size), **given)
    with pytest.raises(ValueError, match="as many queries as keys, got 4 and 7"):
        tree(matrix(4, keys=7), words(4))
