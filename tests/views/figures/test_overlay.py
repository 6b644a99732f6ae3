"""What a token of a vision transformer looks at, over the picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from regard.views.figures.overlay import overlay
from regard.views.figures.patches import as_picture, patch_grid
from tests.views.figures.examples import call_of, dense, matrix
from tests.views.figures.layout import check_files, check_layout

PICTURE = np.linspace(0.0, 1.0, 30 * 40 * 3).reshape(30, 40, 3)


def test_weights_lie_over_the_picture(tmp_path: Path) -> None:
    given = matrix(17)
    figure = overlay(call_of(given), PICTURE, token=3, head=1)
    picture, weights = figure.axes[0].images
    np.testing.assert_allclose(np.asarray(picture.get_array()), PICTURE)
    np.testing.assert_allclose(
        np.asarray(weights.get_array()), dense(given)[1, 3, 1:].reshape(4, 4), atol=1e-15
    )
    assert picture.get_extent() == weights.get_extent() == [-0.5, 39.5, 29.5, -0.5]
    assert figure.axes[0].get_title() == "token 3, layer 5, head 1"
    assert figure.axes[1].get_ylabel() == "weight of a patch"
    check_layout(figure)
    check_files(figure, tmp_path, "token 3, layer 5, head 1")


def test_the_picture_shines_through_where_there_is_no_weight() -> None:
    colours = overlay(matrix(17), PICTURE).axes[0].images[1].cmap(np.linspace(0, 1, 20))
    assert colours[0, 3] == 0.0
    assert (np.diff(colours[:, 3]) > 0).all()
    assert colours[-1, 3] < 1.0


def test_without_a_head_the_mean_is_drawn_and_said() -> None:
    given = matrix(16)
    figure = overlay(given, PICTURE, smooth=False)
    weights = figure.axes[0].images[1]
    expected = dense(given).mean(dim=0)[0].reshape(4, 4)
    np.testing.assert_allclose(np.asarray(weights.get_array()), expected, atol=1e-15)
    assert figure.axes[0].get_title() == "token 0, mean of 3 heads"
    assert weights.get_interpolation() == "nearest"


@pytest.mark.parametrize(
    ("keys", "patches", "first", "expected"),
    [
        (197, None, None, (1, 14, 14)),
        (198, None, None, (2, 14, 14)),
        (261, None, None, (5, 16, 16)),
        (196, None, None, (0, 14, 14)),
        (13, (3, 4), None, (1, 3, 4)),
        (12, (3, 4), 0, (0, 3, 4)),
        (9, None, 5, (5, 2, 2)),
    ],
)
def test_patches_are_counted(keys: int, patches: tuple | None, first: int | None, expected) -> None:
    assert patch_grid(keys, patches, first) == expected


@pytest.mark.usefixtures("unchecked")
def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"60 keys are no square.*as patches=\(12, 16\)"):
        patch_grid(60, None, 0)
    with pytest.raises(ValueError, match="3 × 4 patches don't fit 11 keys"):
        patch_grid(11, (3, 4), None)
    with pytest.raises(ValueError, match="3 × 4 patches and 2 tokens before them"):
        patch_grid(13, (3, 4), 2)
    with pytest.raises(IndexError, match="token must be an index of 17 tokens, got 17"):
        overlay(matrix(17), PICTURE, token=17)
    with pytest.raises(ValueError, match=r"got \[2, 5, 7\]"):
        overlay(matrix(17), np.zeros((2, 5, 7)))


def test_pictures_of_all_kinds_are_the_same() -> None:
    whole = (PICTURE * 255).round().astype(np.uint8)
    expected = whole / 255
    for image in (
        Image.fromarray(whole),
        whole,
        torch.tensor(whole),
        torch.tensor(whole).permute(2, 0, 1),
        torch.tensor(expected),
        torch.tensor(expected).permute(2, 0, 1),
    ):
        np.testing.assert_allclose(as_picture(image), expected, atol=1e-6)
    assert as_picture(torch.rand(5, 7)).shape == (5, 7, 3)


def test_it_draws_where_it_is_told_to() -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert overlay(matrix(17), PICTURE, ax=left) is figure
    assert not right.images
