"""The attention matrix as a picture."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
import pytest
import torch
from matplotlib.colors import LogNorm, to_rgb
from matplotlib.figure import Figure

from regard import AttentionMatrix, EffectMatrix, causal
from regard.matrix import NormMatrix
from regard.views.figures.heatmap import heatmap
from regard.views.figures.ticks import Ticks
from tests.views.figures.examples import STRANGE, call_of, causal_matrix, dense, matrix, words
from tests.views.figures.layout import check_files, check_layout, labels, texts


def drawn(figure: Figure, panel: int = 0) -> np.ndarray:
    return np.asarray(figure.axes[panel].images[0].get_array())


def test_values_are_the_weights() -> None:
    given = matrix(8)
    figure = heatmap(given, head=2)
    np.testing.assert_allclose(drawn(figure), dense(given)[2], atol=1e-15)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_long_texts_are_pooled_and_the_colour_bar_says_so(pool: str) -> None:
    given = causal_matrix(130)
    figure = heatmap(given, head=1, size=26, pool=pool)
    blocks = dense(given)[1].reshape(26, 5, 26, 5)
    expected = blocks.mean(dim=(1, 3)) if pool == "mean" else blocks.amax(dim=(1, 3))
    np.testing.assert_allclose(drawn(figure), expected, atol=1e-15)
    word = "mean" if pool == "mean" else "largest"
    assert figure.axes[1].get_ylabel() == f"{word} weight of 5 × 5 tokens"
    assert figure.axes[0].get_xlim() == (-0.5, 129.5)


def test_a_last_cell_that_is_smaller_ends_where_the_text_does() -> None:
    figure = heatmap(matrix(11), head=0, size=4)
    image, ax = figure.axes[0].images[0], figure.axes[0]
    assert image.get_extent() == [-0.5, 11.5, 11.5, -0.5]
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 10.5), (10.5, -0.5))


def test_tokens_are_on_both_axes_in_order() -> None:
    figure = heatmap(matrix(8), ["The", "Ġdog", "Ċ", *words(5)], head=0)
    expected = ["The", "dog", "↵", *words(5)]
    assert labels(figure.axes[0], "x") == labels(figure.axes[0], "y") == expected
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("key", "query")
    check_layout(figure)


def test_where_tokens_have_no_room_there_are_round_positions() -> None:
    figure = heatmap(matrix(300, heads=1), words(300))
    assert labels(figure.axes[0], "x")[:3] == ["0", "50", "100"]
    check_layout(figure)


def test_tokens_of_a_long_text_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    put, tried = Ticks._put, []

    def counting(ticks: Ticks, at: Sequence[int], *others: Any, **options: Any) -> None:
        tried.append(len(at))
        put(ticks, at, *others, **options)

    monkeypatch.setattr(Ticks, "_put", counting)
    figure = heatmap(matrix(2000, heads=1), words(2000))
    assert labels(figure.axes[0], "y")[:3] == ["0", "200", "400"]
    assert max(tried) < 40


@pytest.mark.parametrize("count", [30, 45, 60])
def test_positions_have_marks_after_tokens_were_tried(count: int) -> None:
    tried, plain = (
        heatmap(matrix(count, heads=1), tokens).axes[0] for tokens in (words(count), None)
    )
    for one, other in ((tried.xaxis, plain.xaxis), (tried.yaxis, plain.yaxis)):
        marks = [axis.get_major_ticks()[0].tick1line.get_markersize() for axis in (one, other)]
        assert marks[0] == marks[1] > 0


def test_more_tokens_fit_on_more_paper() -> None:
    figure = heatmap(matrix(40), words(40), head=0, figsize=(6.0, 5.6))
    assert labels(figure.axes[0], "x") == words(40)
    check_layout(figure)


def test_a_part_has_its_own_tokens_and_positions() -> None:
    part = causal_matrix(300)[0, 1, 100:110, 95:110]
    whole = heatmap(part, words(300))
    assert labels(whole.axes[0], "y") == words(300)[100:110]
    assert labels(whole.axes[0], "x") == words(300)[95:110]
    assert labels(heatmap(part).axes[0], "x")[:3] == ["96", "98", "100"]


def test_cross_attention_has_two_texts() -> None:
    call = call_of(matrix(4, keys=7), kind="cross")
    figure = heatmap(call, words(4), key_tokens=list("abcdefg"), head=0)
    assert labels(figure.axes[0], "y") == words(4)
    assert labels(figure.axes[0], "x") == list("abcdefg")
    assert labels(heatmap(call, words(4), head=0).axes[0], "x")[0] == "0"
    check_layout(figure)


def test_several_heads_share_a_colour_bar() -> None:
    given = matrix(8)
    figure = heatmap(given, words(8), head=[2, 0])
    *panels, bar = figure.axes
    assert [panel.get_title() for panel in panels] == ["head 2", "head 0"]
    limits = {panel.images[0].get_clim() for panel in panels}
    assert limits == {(0.0, dense(given)[[0, 2]].max().item())}
    np.testing.assert_allclose(drawn(figure, 1), dense(given)[0], atol=1e-15)
    assert bar.get_xlabel() == "weight"
    check_layout(figure)


def test_a_figure_of_several_heads_is_wide_enough_for_their_tokens() -> None:
    figure = heatmap(matrix(16, heads=4), words(16))
    *panels, _ = figure.axes
    assert labels(panels[0], "y") == labels(panels[-1], "x") == words(16)
    assert figure.get_figwidth() == 7.0
    check_layout(figure)


@pytest.mark.parametrize("heads", [5, 14])
def test_all_heads_are_drawn_by_default(heads: int) -> None:
    figure = heatmap(matrix(8, heads=heads), words(8))
    shown = [ax.get_title() for ax in figure.axes if ax.get_visible() and ax.get_title()]
    assert shown == [f"head {head}" for head in range(heads)]
    check_layout(figure)


def test_log_leaves_forbidden_pairs_in_the_colour_of_the_background() -> None:
    figure = heatmap(causal_matrix(6), head=0, scale="log")
    image = figure.axes[0].images[0]
    assert isinstance(image.norm, LogNorm)
    colours = image.to_rgba(image.get_array())
    assert (colours[~np.tri(6, dtype=bool)][:, 3] == 0.0).all()
    assert (colours[np.tri(6, dtype=bool)][:, 3] == 1.0).all()
    assert image.norm.vmin >= 1e-4 * image.norm.vmax
    check_layout(figure)


def test_what_is_no_number_is_grey() -> None:
    weights = torch.full((1, 1, 4, 4), 0.25)
    weights[0, 0, 2] = torch.nan
    figure = heatmap(AttentionMatrix.from_weights(weights))
    over = np.asarray(figure.axes[0].images[1].get_array().filled(0.0))
    assert over.sum(axis=1).tolist() == [0, 0, 4, 0]


def test_vmax_is_the_strongest_colour() -> None:
    figure = heatmap(matrix(8), head=0, vmax=0.25)
    assert figure.axes[0].images[0].get_clim() == (0.0, 0.25)


def test_it_draws_where_it_is_told_to() -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert heatmap(call_of(matrix(8)), words(8), head=1, ax=right) is figure
    assert not left.images
    assert right.get_title() == "layer 5, head 1"
    check_layout(figure)


def test_strange_tokens_are_written_or_replaced(tmp_path: Path) -> None:
    figure = heatmap(matrix(len(STRANGE)), STRANGE, head=0)
    shown = labels(figure.axes[0], "y")
    assert shown[:2] == ["$x$", "<script>"]
    assert shown[4:8] == ["\ufffd", "∅", "↵", "a_b^c{"]
    check_layout(figure)
    check_files(figure, tmp_path, "$x$", "<script>", "a_b^c{")


def test_one_token() -> None:
    figure = heatmap(causal_matrix(1), ["a"], head=0, scale="log")
    assert labels(figure.axes[0], "x") == ["a"]
    check_layout(figure)


def test_dark_styles_hold() -> None:
    with matplotlib.style.context("dark_background"):
        figure = heatmap(causal_matrix(8), words(8), head=0)
    image = figure.axes[0].images[0]
    assert to_rgb(figure.get_facecolor()) == (0.0, 0.0, 0.0)
    assert {to_rgb(text.get_color()) for text in texts(figure)} == {(1.0, 1.0, 1.0)}
    assert image.cmap(0.0)[:3] == (0.0, 0.0, 0.0)
    assert sum(image.cmap(1.0)[:3]) > 2.5


def test_no_setting_stays_changed() -> None:
    before = dict(matplotlib.rcParams)
    heatmap(matrix(3), head=0)
    assert dict(matplotlib.rcParams) == before
    assert (
        "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    )


def test_notebooks_show_it() -> None:
    png = heatmap(matrix(3), head=0)._repr_png_()
    assert png.startswith(b"\x89PNG")


def test_colours_get_steadily_darker() -> None:
    cmap = heatmap(matrix(3), head=0).axes[0].images[0].cmap
    lightness = cmap(np.linspace(0, 1, 50))[:, :3] @ [0.299, 0.587, 0.114]
    assert cmap(0.0)[:3] == (1.0, 1.0, 1.0)
    assert (np.diff(lightness) < 0).all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": words(7)}, r"as many tokens as keys \(8\), got 7"),
        ({"tokens": words(8), "key_tokens": words(5)}, r"^key_tokens must .* \(8\), got 5"),
        ({"scale": "root"}, 'scale must be one of "linear", "log", got "root"'),
        ({"pool": "sum"}, "how must be 'mean' or 'max', got 'sum'"),
        ({"head": []}, "head must not be empty"),
        ({"head": [0, 1], "ax": "here"}, "ax takes one head, got 2"),
        ({"head": 0, "ax": "here", "figsize": (3, 3)}, "ax and figsize can't both be given"),
    ],
)
def test_errors_say_what_is_wrong(given: dict, message: str) -> None:
    if "ax" in given:
        given = given | {"ax": Figure().add_subplot()}
    with pytest.raises(ValueError, match=message):
        heatmap(matrix(8), **given)


def test_a_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'figures need matplotlib: pip install "regard\[plot\]"'):
        heatmap(matrix(3), head=0)


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_effects_have_the_background_at_0_and_a_colour_for_each_sign(style: str) -> None:
    torch.manual_seed(0)
    effects = EffectMatrix(*torch.randn(4, 1, 2, 9, 8), pattern=causal())
    with matplotlib.style.context(style):
        figure = heatmap(effects, words(9), head=1)
        check_layout(figure)
        image, background = figure.axes[0].images[0], to_rgb(figure.axes[0].get_facecolor())
    np.testing.assert_allclose(drawn(figure), effects[0, 1].dense(), atol=1e-7)
    largest = float(effects[0, 1].dense().abs().max())
    assert (image.norm.vmin, image.norm.vmax) == pytest.approx((-largest, largest))
    below, nothing, above = (image.cmap(image.norm(x))[:3] for x in (-largest, 0.0, largest))
    assert nothing == pytest.approx(background, abs=0.02)
    assert below[0] > below[2]
    assert above[2] > above[0]
    assert figure.axes[1].get_ylabel() == "effect"
    with pytest.raises(ValueError, match='scale must be "linear" for effects'):
        heatmap(effects, head=1, scale="log")


def test_norms_are_drawn_as_weights_are() -> None:
    given = matrix(8)
    norms = NormMatrix(
        given, torch.randn(*given.shape[:2], 8, 4), torch.randn(given.shape[1], 4, 6)
    )
    figure = heatmap(norms, head=2)
    np.testing.assert_allclose(drawn(figure), norms[0, 2].dense(), atol=1e-12)
    assert figure.axes[1].get_ylabel() == "norm"
