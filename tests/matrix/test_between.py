"""`Between` against queries @ A @ keysᵀ, written out in loops over the whole matrix in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.matrix import AttentionMatrix, Between, accumulate, tile_plan
from regard.patterns import Pattern, causal, columns, everyone, strided, window
from tests.attention.cases import Case, case_of
from tests.matrix.cases import dense_weights, matrix_of, tolerance


def groups_of(batch: int, count: int, length: int, seed: int) -> Tensor:
    """Return groups that overlap, leave places out and count them by different amounts."""
    generator = torch.Generator().manual_seed(seed)
    members = torch.rand(batch, count, length, generator=generator, dtype=torch.float64)
    groups = torch.where(members < 0.4, members, 0.0)
    groups[:, 1] = 0.0
    return groups


def in_loops(weights: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Sum pair by pair of groups, [batch, heads, query_groups, key_groups]."""
    batch, heads = weights.shape[:2]
    found = torch.zeros(batch, heads, queries.shape[1], keys.shape[1], dtype=torch.float64)
    for b in range(batch):
        for m in range(queries.shape[1]):
            for k in range(keys.shape[1]):
                counts = queries[b, m].double()[:, None] * keys[b, k].double()
                found[b, :, m, k] = (weights[b] * counts).sum(dim=(1, 2))
    return found


def allowance(case: Case, dtype: torch.dtype, queries: Tensor) -> float:
    """Return how far sums may be off: a row has at most 1, and so many terms are added up."""
    rows, keys = case.query.shape[2], case.key.shape[2]
    share = tolerance(case, dtype) + (rows + keys + 4) * torch.finfo(dtype).eps
    return share * float(queries.double().sum(dim=2).max())


PATTERNS = [everyone(), causal(), causal() & (window(3) | columns(every=8)), strided(5)]


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("sizes", [(37, 41), (13, 13)])
def test_between_is_its_definition(
    dtype: torch.dtype, pattern: Pattern, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several tiles of a few rows each, some of which have only some of the columns.
    monkeypatch.setattr(tile_plan, "GEMM_ROWS", 5)
    case = case_of(heads=3, group=2, queries=sizes[0], keys=sizes[1], pattern=pattern, dtype=dtype)
    queries, keys = groups_of(2, 7, sizes[0], seed=1), groups_of(2, 3, sizes[1], seed=2)
    (found,) = matrix_of(case).summarize(Between(queries, keys), budget=20_000)
    expected = in_loops(dense_weights(case), queries, keys)
    assert found.weights.dtype == dtype
    assert found.weights.shape == expected.shape
    assert (found.weights - expected).abs().max() <= allowance(case, dtype, queries)
    assert found.weights[:, :, 1].tolist() == torch.zeros(2, 6, 3).tolist()


def test_booleans_count_once() -> None:
    case = case_of(batch=2, heads=2, queries=11)
    members = groups_of(2, 5, 11, seed=3) > 0
    (found,) = matrix_of(case).summarize(Between(members, members))
    expected = in_loops(dense_weights(case), members, members)
    assert (found.weights - expected).abs().max() <= allowance(case, torch.float64, members)


def test_words_by_hand() -> None:
    # Three tokens, two words: the first word has tokens 0 and 1.
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.75, 0.25], [0.125, 0.125, 0.75]])
    matrix = AttentionMatrix.from_weights(weights[None, None].double())
    words = torch.tensor([[[True, True, False], [False, False, True]]])
    (found,) = matrix[0, 0].summarize(Between(words / words.sum(dim=2, keepdim=True), words))
    assert found.weights.tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert (list(found.labels["query_groups"]), list(found.labels["key_groups"])) == (
        [0, 1],
        [0, 1],
    )


def test_groups_of_a_view_are_those_of_the_whole_matrix() -> None:
    case = case_of(batch=2, heads=3, queries=11, keys=13)
    queries, keys = groups_of(2, 4, 11, seed=4), groups_of(2, 4, 13, seed=5)
    (found,) = matrix_of(case)[1, 1:, 2:9:3, 4:].summarize(Between(queries, keys))
    weights = torch.zeros(2, 3, 11, 13, dtype=torch.float64)
    weights[..., 2:9:3, 4:] = dense_weights(case)[..., 2:9:3, 4:]
    expected = in_loops(weights, queries, keys)[1, 1:]
    assert found.axes("weights") == ("heads", "query_groups", "key_groups")
    assert (found.weights - expected).abs().max() <= allowance(case, torch.float64, queries)


def test_a_matrix_in_parts() -> None:
    case = case_of(batch=1, queries=17, pattern=causal())
    groups = groups_of(1, 3, 17, seed=6)
    one, matrix = Between(groups, groups), matrix_of(case)
    states = [accumulate(matrix[..., part, :].view, [one])[0] for part in (slice(5), slice(5, 17))]
    (whole,) = matrix.summarize(one)
    torch.testing.assert_close(one.finish(one.merge(*states)).weights, whole.weights)


@torch.no_grad()
def test_between_while_a_model_runs() -> None:
    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoderLayer(32, nhead=4, batch_first=True).eval()
    inputs, groups = torch.randn(2, 10, 32), groups_of(2, 3, 10, seed=7)
    with regard.watch(encoder, keep=[Between(groups, groups)]) as summed:
        encoder(inputs)
    with regard.watch(encoder) as seen:
        encoder(inputs)
    expected = in_loops(seen[0].matrix.dense().double(), groups, groups)
    (found,) = summed[0].results
    torch.testing.assert_close(found.weights.double(), expected, rtol=0.0, atol=1e-5)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([[[True]]], "Between: queries must be a tensor, got list"),
        (
            torch.ones(1, 2, 5, dtype=torch.long),
            "Between: queries must be boolean or floating, got torch.int64; "
            "for counts use .double()",
        ),
    ],
)
def test_groups_of_the_wrong_kind(queries: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Between(queries, torch.ones(1, 2, 5))
    assert str(caught.value) == message


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("queries", "keys", "message"),
    [
        (
            (2, 3, 6),
            (2, 3, 7),
            "Between: queries must have the shape [2, groups, 5], got [2, 3, 6]",
        ),
        (
            (1, 3, 5),
            (2, 3, 7),
            "Between: queries must have the shape [2, groups, 5], got [1, 3, 5]",
        ),
        ((2, 3, 5), (3, 7), "Between: keys must have the shape [2, groups, 7], got [3, 7]"),
    ],
)
def test_groups_of_the_wrong_shape(
    queries: tuple[int, ...], keys: tuple[int, ...], message: str
) -> None:
    matrix = matrix_of(case_of(batch=2, queries=5, keys=7))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        matrix.summarize(Between(torch.ones(queries), torch.ones(keys)))
    assert str(caught.value) == message


@pytest.mark.parametrize("sizes", [(0, 5, 7), (2, 0, 7), (2, 5, 0)])
def test_axes_of_size_zero(sizes: tuple[int, int, int]) -> None:
    batch, queries, keys = sizes
    matrix = AttentionMatrix(
        torch.zeros(batch, 3, queries, 4), torch.zeros(batch, 3, keys, 4), positions=0
    )
    groups = Between(torch.ones(batch, 2, queries), torch.ones(batch, 4, keys))
    (found,) = matrix.summarize(groups)
    assert found.weights.shape == (batch, 3, 2, 4)
    assert bool((found.weights == 0).all()) or (queries and keys)
