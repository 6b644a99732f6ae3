"""Over a distance, an RNN forgets and attention does not."""

from pathlib import Path

import pytest

from examples.recall_over_distance import KINDS, NUM_SYMBOLS, draw, recall

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("kind", KINDS)
def test_all_recall_what_is_near(kind: str) -> None:
    assert recall(kind, 3, steps=200) > 0.95


DISTANCES = pytest.mark.parametrize(
    ("distance", "steps"), [(16, 200), pytest.param(60, 600, marks=pytest.mark.thorough)]
)


@DISTANCES
def test_an_rnn_forgets(distance: int, steps: int) -> None:
    assert recall("RNN", distance, steps=steps) < 2 / NUM_SYMBOLS


@DISTANCES
@pytest.mark.parametrize("kind", ["RNN with self-attention", "attention"])
def test_attention_recalls(kind: str, distance: int, steps: int) -> None:
    assert recall(kind, distance, steps=steps) > 0.95


def test_draw(tmp_path: Path) -> None:
    path = tmp_path / "recall.svg"
    draw({kind: [1.0, 0.5] for kind in KINDS}, [5, 10], path)
    assert path.stat().st_size > 5_000
