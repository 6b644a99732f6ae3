"""What is kept between two looks at matrices never changes the second: looks in any order.

A look may be remembered by the matrix (log-sum-exp) or for the process (how a pattern is cut up).
Each look of a sequence is compared with the definition, not with another matrix: that one would
share what is remembered.
"""

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor

from regard import AttentionMatrix, causal, window
from regard.atlas.sampled_top_keys import Glimpses
from regard.matrix import Entropy
from regard.positions import Relative, from_tensor, softcap
from regard.positions.bias import compose
from regard.versions import Overwritten
from tests.attention.cases import case_of
from tests.matrix.cases import (
    allowance,
    assert_within,
    dense_lse,
    dense_weights,
    lse_tolerance,
    matrix_cases,
    matrix_of,
)
from tests.matrix.expected import indices


@strategies.composite
def alike(draw: strategies.DrawFn, size: int) -> tuple[list[int], list[int]]:
    """Draw two lists of places with one length, first and last: those of places in a row."""
    distance = draw(strategies.integers(2, max(2, min(6, size - 1))))
    first = draw(strategies.integers(0, size - 1 - distance)) if distance < size else 0
    between = strategies.lists(
        strategies.integers(0, size - 1), min_size=distance - 1, max_size=distance - 1
    )
    last = min(first + distance, size - 1)
    return [first, *draw(between), last], [first, *draw(between), last]


@given(strategies.data())
def test_looks_in_any_order(data: strategies.DataObject) -> None:
    case, sinks = data.draw(matrix_cases(lengths=(7, 67, 131, 199)))
    exact, allowed = dense_weights(case, sinks), allowance(case, torch.float64, sinks)
    sums, off = dense_lse(case, sinks), lse_tolerance(case, torch.float64, sinks)
    matrix = matrix_of(case, sinks)
    kinds = strategies.sampled_from(["rows", "columns", "part", "lse", "another"])
    for kind in data.draw(strategies.lists(kinds, min_size=2, max_size=6)):
        if kind == "rows":
            for places in data.draw(alike(exact.shape[2])):
                assert_within(matrix.rows(places), exact[:, :, places], allowed[:, :, places])
        elif kind == "columns":
            for places in data.draw(alike(exact.shape[3])):
                assert_within(matrix.columns(places), exact[..., places], allowed[..., places])
        elif kind == "part":
            where = data.draw(indices(exact.shape))
            part = matrix[where]
            found = part.dense() if isinstance(part, AttentionMatrix) else part
            assert_within(found, exact[where], allowed[where])
        elif kind == "lse":
            assert_within(matrix.lse, sums, off)
        else:
            matrix = matrix_of(case, sinks)


def test_rows_with_the_ends_of_rows_before() -> None:
    """Rows 0, 900, 2 are three, as 0, 1, 2 are; how they are cut up says nothing of 0, 1500, 2."""
    query, key = torch.randn(2, 1, 1, 2000, 8, generator=torch.Generator().manual_seed(0)).double()
    matrix = AttentionMatrix(query, key, pattern=causal())
    matrix.rows([0, 900, 2])
    row = (query[0, 0, 1500] @ key[0, 0, :1501].T / 8**0.5).softmax(dim=-1)
    torch.testing.assert_close(matrix.rows([0, 1500, 2])[0, 0, 1, :1501], row)
    torch.testing.assert_close(matrix[0, 0, 1500, :1501], row)


def test_queries_that_stand_at_other_positions() -> None:
    """The same rows of matrices whose queries stand elsewhere, with equal ends."""
    query, key = torch.randn(2, 1, 1, 131, 4, generator=torch.Generator().manual_seed(0)).double()
    pattern = causal() & window(before=20)
    for middle in (60, 120):
        positions = torch.tensor([0, middle, 2])
        matrix = AttentionMatrix(query[:, :, :3], key, pattern=pattern, positions=positions)
        allowed = pattern.allows(positions, range(131))
        scores = (query[0, 0, :3] @ key[0, 0].T / 2).masked_fill(~allowed, -torch.inf)
        torch.testing.assert_close(matrix.dense()[0, 0], scores.softmax(dim=-1))


def test_one_reduction_on_views_that_begin_elsewhere() -> None:
    """What a reduction has found of a tile holds for that tile only, not for one of its shape."""
    # Each looks most at itself, which does not count.
    vectors = 9 * torch.nn.functional.one_hot(torch.arange(12)).float()[None, None]
    nowhere = torch.zeros(1, 12, dtype=torch.bool)
    rows = torch.tensor([[1, 3]])
    matrix = AttentionMatrix(vectors, vectors)
    used = Glimpses(rows, nowhere)
    for first in (0, 5, 2):
        view = matrix[:, :, first : first + 4]
        found, fresh = view.summarize(used, Glimpses(rows, nowhere))
        assert torch.equal(found.keys, fresh.keys)


MADE_FROM = ["query", "key", "bias", "weights"]


def made(parts: dict[str, Tensor], name: str) -> AttentionMatrix:
    if name == "weights":
        return AttentionMatrix.from_weights(parts["weights"])
    table = Relative(num_heads=2)
    table.table = torch.nn.Parameter(parts["table"])
    values = from_tensor(parts["bias"])
    biases: dict[str, Any] = {
        "bias": parts["bias"],
        "table": table,
        "joined": compose(softcap(3.0), values),
    }
    return AttentionMatrix(parts["query"], parts["key"], bias=biases.get(name), positions=0)


def random_parts() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"query": (1, 2, 5, 4), "key": (1, 2, 7, 4), "bias": (1, 2, 5, 7), "table": (32, 2)}
    parts = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return parts | {"weights": parts["bias"].softmax(dim=-1)}


class TestModifiedInPlace:
    @pytest.mark.parametrize(
        "look",
        [
            lambda matrix: matrix[0, 1, 3],
            lambda matrix: matrix[0, 1, 3:4, 2:3].dense(),
            lambda matrix: matrix @ torch.ones(7, 3),
            lambda matrix: matrix.summarize(Entropy()),
        ],
    )
    @pytest.mark.parametrize("name", MADE_FROM)
    def test_it_is_refused(self, name: str, look: Any) -> None:
        parts = random_parts()
        matrix = made(parts, name)
        look(matrix)
        parts[name].mul_(0.5)
        rule = rf"^{name} (was|were) modified in place after the attention matrix was made"
        with pytest.raises(Overwritten, match=rule):
            look(matrix)

    def test_the_log_sum_exp_is_refused(self) -> None:
        parts = random_parts()
        matrix = made(parts, "query")
        assert matrix.lse.shape == (1, 2, 5)
        parts["query"].mul_(0.5)
        with pytest.raises(Overwritten, match=r"make the matrix from query.clone\(\)$"):
            _ = matrix.lse

    @pytest.mark.parametrize("name", [*MADE_FROM, "joined", "table"])
    def test_in_inference_mode_it_is_what_it_was(self, name: str) -> None:
        """PyTorch counts no writes there."""
        with torch.inference_mode():
            parts = random_parts()
            matrix = made(parts, name)
            expected = made(random_parts(), name).dense()
            matrix.rows([1])
            for part in parts.values():
                part.mul_(0.5)
            torch.testing.assert_close(matrix.dense(), expected)

    def test_positions_are_copied(self) -> None:
        parts, positions = random_parts(), torch.tensor([0, 3, 1, 2, 6])
        options: dict[str, Any] = {"pattern": causal()}
        matrix = AttentionMatrix(parts["query"], parts["key"], positions=positions, **options)
        expected = AttentionMatrix(
            parts["query"], parts["key"], positions=positions.clone(), **options
        ).dense()
        positions.fill_(6)
        assert torch.equal(matrix.dense(), expected)

    @pytest.mark.parametrize("name", MADE_FROM)
    def test_copies_are_their_own(self, name: str) -> None:
        parts = random_parts()
        # A version that no new tensor has.
        for part in parts.values():
            part.add_(0.0)
        matrix = made(parts, name)
        expected = matrix.dense()
        copies = [copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))]
        parts[name].mul_(0.5)
        for one in copies:
            torch.testing.assert_close(one.dense(), expected)
        with pytest.raises(Overwritten, match=f"^{name} was modified in place"):
            copy.deepcopy(matrix)


def test_a_case_keeps_its_numbers() -> None:
    """Looking modifies nothing that a matrix is made from."""
    case = case_of(queries=67, pattern=causal())
    before = [case.query.clone(), case.key.clone()]
    matrix_of(case).summarize(Entropy())
    assert all(map(torch.equal, before, [case.query, case.key]))
