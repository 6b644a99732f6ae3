"""What heads do, counted, against a slow count of dense weights."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import AttentionMatrix, causal, everyone
from regard.atlas.head_statistics import REACH, SINK, SINK_LOOKERS, Habits, Kinds, distance_edges
from regard.atlas.sampled_top_keys import Glimpses
from regard.patterns import Pattern, window

HEADS, LENGTH, BATCH = 3, 41, 2


def _matrix(pattern: Pattern, length: int = LENGTH) -> AttentionMatrix:
    torch.manual_seed(1)
    query, key = (torch.randn(BATCH, HEADS, length, 8, dtype=torch.float64) for _ in range(2))
    # Some heads look at the first key nearly always.
    key[:, 0, 0] = 0.0
    query[:, 0, :, 0] += 6.0
    key[:, 0, 0, 0] = 9.0
    return AttentionMatrix(query, key, pattern=pattern)


def _kinds(length: int = LENGTH) -> Kinds:
    torch.manual_seed(2)
    ids = torch.randint(0, 9, (BATCH, length))
    return Kinds(ids, ids == 3, (ids == 4) | (ids == 5))


def _slowly(weights: Tensor, pattern: Pattern, kinds: Kinds) -> dict[str, np.ndarray]:
    """Count pair by pair."""
    length = weights.shape[2]
    allowed = pattern.allows(range(length), range(length))
    edges = distance_edges(length - 1)
    found: dict[str, np.ndarray] = {
        name: np.zeros(HEADS)
        for name in [
            "entropy",
            "effective",
            "distance",
            "mass",
            "first",
            "separators",
            "punctuation",
            "same",
            "after",
            "first_sinks",
            "sinks",
            "top",
        ]
    }
    found["near"] = np.zeros((HEADS, 2 * REACH + 1))
    found["far"] = np.zeros((HEADS, len(edges)))
    for b in range(BATCH):
        ids = kinds.ids[b].tolist()
        for h in range(HEADS):
            received, lookers = [0.0] * length, [0] * length
            for i in range(length):
                row = weights[b, h, i].tolist()
                entropy = -sum(w * math.log(w) for w in row if w > 0)
                found["entropy"][h] += entropy
                found["effective"][h] += math.exp(entropy)
                for j, w in enumerate(row):
                    received[j] += w
                    lookers[j] += bool(allowed[i, j])
                    found["mass"][h] += w
                    found["distance"][h] += w * abs(i - j)
                    if abs(j - i) <= REACH:
                        found["near"][h, j - i + REACH] += w
                    found["far"][h, max(n for n, e in enumerate(edges) if e <= abs(i - j))] += w
                    found["first"][h] += w if j == 0 and i > 0 else 0
                    found["separators"][h] += w if ids[j] == 3 else 0
                    found["punctuation"][h] += w if ids[j] in (4, 5) else 0
                    found["same"][h] += w if j < i and ids[j] == ids[i] else 0
                    found["after"][h] += w if 0 < j < i and ids[j - 1] == ids[i] else 0
            means = [
                total / seen if seen >= SINK_LOOKERS else 0.0
                for total, seen in zip(received, lookers, strict=True)
            ]
            found["first_sinks"][h] += means[0] > SINK
            found["sinks"][h] += sum(mean > SINK for mean in means)
            found["top"][h] += max(means)
    return found


@pytest.mark.parametrize("pattern", [everyone(), causal(), causal() & window(before=7)], ids=str)
@pytest.mark.parametrize("length", [1, 5, LENGTH, 130])
def test_every_measure_is_that_of_a_slow_count(pattern: Pattern, length: int) -> None:
    matrix, kinds = _matrix(pattern, length), _kinds(length)
    (found,) = matrix.summarize(Habits(kinds))
    for name, expected in _slowly(matrix.dense(), pattern, kinds).items():
        np.testing.assert_allclose(
            found.numpy()[name], expected, rtol=1e-9, atol=1e-9, err_msg=name
        )


def test_tiles_change_nothing() -> None:
    matrix, kinds = _matrix(causal(), 300), _kinds(300)
    (whole,) = matrix.summarize(Habits(kinds))
    (cut,) = matrix.summarize(Habits(kinds), budget=200_000)
    for name, expected in whole.numpy().items():
        np.testing.assert_allclose(cut.numpy()[name], expected, rtol=1e-9, atol=1e-9)


def test_pairs_are_counted_by_query() -> None:
    kinds = Kinds(torch.tensor([[7, 8, 7, 7, 9]]), *torch.zeros(2, 1, 5, dtype=torch.bool))
    assert kinds.same.T.tolist() == [[0, 2, 0], [0, 3, 0], [0, 3, 2]]
    assert kinds.after.T.tolist() == [[0, 2, 1], [0, 3, 1]]
    assert (kinds.count(kinds.same), kinds.count(kinds.after)) == (2, 2)


def test_bins_of_distances_are_exact_near_and_narrow_far() -> None:
    edges = distance_edges(8191)
    assert edges[:65] == list(range(65))
    widths = np.diff(edges[64:]) / edges[64:-1]
    assert widths.max() < 0.1
    assert edges == sorted(set(edges))
    # Bins of a short text are those of a long one, so that they can be added up.
    assert distance_edges(100) == edges[: len(distance_edges(100))]


@pytest.mark.parametrize("pattern", [everyone(), causal()], ids=str)
def test_glimpses_are_the_strongest_keys_that_count(pattern: Pattern) -> None:
    matrix, kinds = _matrix(pattern), _kinds()
    rows = torch.tensor([[0, 4, 40], [17, 17, 1]])
    hidden = kinds.separators.clone()
    hidden[:, 0] = True
    (found,) = matrix.summarize(Glimpses(rows, hidden))
    dense = matrix.dense()
    for b in range(BATCH):
        for h in range(HEADS):
            for number, row in enumerate(rows[b].tolist()):
                counting = [
                    (float(dense[b, h, row, j]), j)
                    for j in range(LENGTH)
                    if j != row and not hidden[b, j] and dense[b, h, row, j] > 0
                ]
                weight, key = max(counting, default=(0.0, -1))
                assert found.keys[b, h, number] == key
                assert float(found.weights[b, h, number]) == pytest.approx(weight)
