"""What reductions refuse of their parameters, groups and patterns."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.matrix import Distance, Edges, Hits, Mass, Offsets, Pool, TopKeys
from regard.patterns import padding
from tests.attention.cases import case_of
from tests.matrix.cases import matrix_of


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Offsets(0), "Offsets: reach must be at least 1, got 0"),
        (lambda: Offsets(-2), "Offsets: reach must be at least 1, got -2"),
        (lambda: Pool(0), "Pool: size must be at least 1, got 0"),
        (lambda: Pool(4, "median"), "Pool: how must be 'mean' or 'max', got 'median'"),  # type: ignore[arg-type]
        (lambda: TopKeys(0), "TopKeys: count must be at least 1, got 0"),
        (lambda: Edges(0.0), "Edges: threshold must be above 0, got 0.0"),
        (lambda: Edges(-0.5), "Edges: threshold must be above 0, got -0.5"),
        (lambda: Edges(torch.nan), "Edges: threshold must be above 0, got nan"),
        (lambda: Edges(0.5, limit=-1), "Edges: limit must be at least 0, got -1"),
        (lambda: Distance((1.5,)), "Distance: shares must be from 0 to 1, got 1.5"),
        (lambda: Distance((0.5, -0.1)), "Distance: shares must be from 0 to 1, got -0.1"),
        (lambda: Distance((torch.nan,)), "Distance: shares must be from 0 to 1, got nan"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_parameters_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert str(caught.value) == message


@pytest.mark.usefixtures("unchecked")
def test_groups_of_the_wrong_kind() -> None:
    rule = "Mass: group 'stops' must be a boolean tensor or a pattern, got "
    with pytest.raises(TypeError) as caught:
        Mass({"stops": torch.ones(7)})
    assert str(caught.value) == rule + "torch.float32"
    with pytest.raises(TypeError) as caught:
        Mass({"stops": [True, False]})  # type: ignore[dict-item]
    assert str(caught.value) == rule + "list"


@pytest.mark.parametrize("shape", [(6,), (2, 6), (3, 7), (1, 7), (2, 3, 7)])
def test_groups_of_the_wrong_length(shape: tuple[int, ...]) -> None:
    matrix = matrix_of(case_of(batch=2, queries=5, keys=7))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        matrix.summarize(Mass({"stops": torch.ones(shape, dtype=torch.bool)}))
    assert str(caught.value) == (
        f"Mass: group 'stops' must have the shape [7] or [2, 7], got {list(shape)}"
    )


def test_groups_of_a_view_have_the_length_of_the_whole_matrix() -> None:
    matrix = matrix_of(case_of(batch=2, queries=5, keys=7))
    with pytest.raises(ValueError, match=r"must have the shape \[7\] or \[2, 7\], got \[4\]"):
        matrix[..., 3:].summarize(Mass({"stops": torch.ones(4, dtype=torch.bool)}))


@pytest.mark.parametrize("reduction", [Mass({"own": padding([3, 5, 7])}), Hits(padding([3, 5, 7]))])
def test_patterns_of_another_batch_are_refused(reduction: Any) -> None:
    matrix = matrix_of(case_of(batch=2, queries=7))
    with pytest.raises(ValueError, match="3"):
        matrix.summarize(reduction)
