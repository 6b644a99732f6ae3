"""All heads of a model at a glance."""

from pathlib import Path

import matplotlib.style
import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard import AttentionMatrix
from regard.calls.measures import measures
from regard.calls.outputs import HeadEffects
from regard.views.figures.heads import heads
from tests.views.figures.examples import STRANGE, call_of, causal_matrix, dense, matrix, words
from tests.views.figures.layout import check_files, check_layout, labels, texts


def flat(num_heads: int) -> AttentionMatrix:
    return AttentionMatrix.from_weights(torch.full((1, num_heads, 2, 2), 0.5))


def test_pictures_are_the_weights_relative_to_the_strongest() -> None:
    given = matrix(8)
    figure = heads([given, given])
    image = np.asarray(figure.axes[0].images[0].get_array().filled(-1.0))
    cell = image.shape[0] // 2
    assert image.shape == (2 * cell, 3 * cell)
    picture = image[cell:, 2 * cell :]
    inside = picture[(picture >= 0.0).any(axis=1)][:, (picture >= 0.0).any(axis=0)]
    times = len(inside) // 8
    expected = dense(given)[2] / dense(given)[2].max()
    np.testing.assert_allclose(inside, np.kron(expected, np.ones((times, times))), atol=1e-12)


def test_long_texts_are_pooled() -> None:
    figure = heads([causal_matrix(300)])
    assert max(figure.axes[0].images[0].get_array().shape) < 3 * 60


@pytest.mark.parametrize("value", [None, "entropy"])
@pytest.mark.parametrize("shape", [(6, 12), (30, 9), (48, 32), (1, 1)])
def test_layers_and_heads_are_numbered(shape: tuple[int, int], value: str | None) -> None:
    figure = heads([flat(shape[1])] * shape[0], value)
    ax = figure.axes[0]
    rows, columns = labels(ax, "y"), labels(ax, "x")
    assert rows[0] == columns[0] == "0"
    assert len(rows) >= shape[0] // 5
    assert len(columns) >= shape[1] // 5
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("head", "layer")
    assert figure.get_figwidth() <= 7.0
    assert figure.get_figheight() <= 9.0
    check_layout(figure)


def test_layers_have_the_numbers_of_their_modules() -> None:
    calls = [call_of(matrix(4), f"model.layers.{layer}.self_attn") for layer in (7, 9)]
    assert labels(heads(calls).axes[0], "y") == ["7", "9"]
    same = [call_of(matrix(4), f"{part}.layers.0.attn") for part in ("encoder", "decoder")]
    assert labels(heads(same).axes[0], "y") == ["0", "1"]


@pytest.mark.parametrize("name", ["entropy", "distance", "first", "previous", "itself"])
def test_measures_are_drawn(name: str) -> None:
    calls = [call_of(causal_matrix(9), f"layers.{layer}") for layer in range(2)]
    figure = heads(calls, name)
    image = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(np.asarray(image), measures(calls)[name].numpy())


def test_numbers_of_ones_own_have_a_label_and_nan_is_grey() -> None:
    values = torch.tensor([[0.5, torch.nan], [0.2, 0.1]])
    figure = heads([flat(2), flat(2)], values, label="induction")
    image = figure.axes[0].images[0]
    assert image.get_array().mask.tolist() == [[False, True], [False, False]]
    assert figure.axes[1].get_xlabel() == "induction"
    red, green, blue, opacity = image.cmap.get_bad()
    assert red == green == blue < 1.0 == opacity


def test_calls_may_have_fewer_heads() -> None:
    figure = heads([flat(3), flat(1)], "entropy")
    assert figure.axes[0].images[0].get_array().mask.sum() == 2
    check_layout(heads([flat(3), flat(1)]))


def test_what_was_read_is_written_below(tmp_path: Path) -> None:
    figure = heads([matrix(9)], tokens=["[CLS]", "the", "ap", "##ple", *words(4), "."])
    assert "“[CLS] the apple w0 w1 w2 w3.”" in figure.get_supxlabel()
    check_layout(figure)
    long = heads([causal_matrix(300)] * 3, tokens=words(300))
    assert long.get_supxlabel().endswith("…”")
    check_layout(long)
    strange = heads([matrix(len(STRANGE))], tokens=STRANGE)
    check_files(strange, tmp_path, "0")


def test_dark_styles_hold() -> None:
    with matplotlib.style.context("dark_background"):
        figure = heads([matrix(4)])
    assert {sum(matplotlib.colors.to_rgb(text.get_color())) > 1.5 for text in texts(figure)} == {
        True
    }


@pytest.mark.usefixtures("unchecked")
def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="there are no calls"):
        heads([])
    with pytest.raises(ValueError, match=r'values must be one of "entropy", .*, got "width"'):
        heads([flat(2)], "width")
    with pytest.raises(ValueError, match=r"\[1, 2\], got \[2, 2\]"):
        heads([flat(2)], torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"as many tokens as queries \(2\), got 3"):
        heads([flat(2)], tokens=words(3))


def test_effects_of_other_layers_are_refused() -> None:
    model = nn.Sequential(*(regard.layers.MultiHeadAttention(8, 2) for _ in range(2)))
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(1, 5, 8))
    effects = HeadEffects({"layers": [0, 1]}, torch.randn(2, 2), "exact")
    heads(seen, effects)
    with pytest.raises(ValueError, match=r"effects of the layers \[1, 0\], got those of \[0, 1\]"):
        heads(list(reversed(list(seen))), effects)


def test_effects_are_of_all_sequences() -> None:
    several = AttentionMatrix.from_weights(torch.full((3, 2, 4, 4), 0.25))
    effects = HeadEffects({"layers": [0]}, torch.tensor([[1.0, 2.0]]), "exact")
    assert heads([several], effects).axes[0].images[0].get_array().tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match="batch must be None for effects, of all sequences, got 1"):
        heads([several], effects, batch=1)


def test_effects_of_heads_have_0_in_the_middle() -> None:
    numbers = torch.tensor([[0.5, -2.0, 1.0], [0.0, torch.nan, 1.5]])
    effects = HeadEffects({"layers": [0, 1]}, numbers, "exact")
    figure = heads([flat(3), flat(3)], effects)
    image = figure.axes[0].images[0]
    np.testing.assert_array_equal(np.asarray(image.get_array().filled(np.nan)), numbers.double())
    assert (image.norm.vmin, image.norm.vmax) == (-2.0, 2.0)
    assert figure.axes[1].get_ylabel() + figure.axes[1].get_xlabel() == "effect, exact"
