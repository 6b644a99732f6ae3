"""Two layers copy by induction, one layer can't, and the heads that do it are found."""

from pathlib import Path

import pytest
import torch

from examples.induction import (
    LENGTHS,
    HeadScores,
    Run,
    accuracy,
    draw,
    head_scores,
    repeated,
    report,
    strongest,
    train,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(one_thread: None) -> list[Run]:
    return [train(num_layers, steps=300, seed=0) for num_layers in (1, 2)]


@pytest.fixture(scope="module")
def scores(runs: list[Run]) -> HeadScores:
    chance = torch.Generator().manual_seed(2)
    return head_scores(runs[1].model, repeated(20, LENGTHS[-1], chance))


def test_two_layers_predict_the_repeat_and_one_does_not(runs: list[Run]):
    one, two = (accuracy(run.model, seed=1) for run in runs)
    assert two >= 0.95
    assert one < 0.6


def test_a_head_of_the_first_layer_looks_at_the_previous_token(scores: HeadScores):
    layer, head = strongest(scores.previous)
    assert layer == 0
    assert scores.previous[layer, head] > 0.6


def test_a_head_of_the_second_layer_looks_at_what_followed_earlier(scores: HeadScores):
    layer, head = strongest(scores.induction)
    assert layer == 1
    assert scores.induction[layer, head] > 0.6
    assert scores.induction[0].max() < 0.2


def test_scores_are_the_weights_where_heads_should_look(runs: list[Run], scores: HeadScores):
    tokens = repeated(3, 10, torch.Generator().manual_seed(3))
    found = head_scores(runs[1].model, tokens)
    before = torch.nn.functional.pad(tokens[:, :-1], (1, 0), value=-1)
    sought = (tokens[:, :, None] == before[:, None, :])[:, None]
    for layer, matrix in enumerate(runs[1].model.matrices(tokens)):
        weights = matrix.dense()
        previous = weights.diagonal(-1, dim1=2, dim2=3)
        induction = (weights * sought).sum(dim=3)[:, :, 10:]
        torch.testing.assert_close(found.previous[layer], previous.mean(dim=(0, 2)))
        torch.testing.assert_close(found.induction[layer], induction.mean(dim=(0, 2)))


def test_the_picture_is_drawn_and_the_table_printed(
    runs: list[Run],
    scores: HeadScores,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    path = tmp_path / "induction.svg"
    draw(*runs, scores, path)
    report(scores)
    assert path.stat().st_size
    assert len(capsys.readouterr().out.splitlines()) == 1 + scores.previous.numel()
