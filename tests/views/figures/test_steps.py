"""The steps of attention for one token."""

import pytest
import torch

from regard.views import explain, steps, worked_example
from tests.views.figures.layout import check_layout


def test_figure_has_the_numbers() -> None:
    drawn = steps(worked_example(), top=5)
    texts = {text.get_text().strip() for ax in drawn.axes for text in ax.texts}
    assert {"1.220", "0.704", "0.180"} <= texts
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    assert labels == ["animal", "cross", "street", "it", "tired"]
    check_layout(drawn)


@pytest.mark.parametrize("scores", [(-4.0, 5.0, -1.0, 0.5), (-3.0, -2.0, -1.0, -9.0)])
@pytest.mark.parametrize("size", [1.0, 1000.0, 1e9])
def test_numbers_below_zero_have_their_place(scores: tuple[float, ...], size: float) -> None:
    keys = [[size * score, 0.0] for score in scores]
    drawn = steps(explain(["doctor", "Donaudampfschiff", "a", "day"], [1.0, 0.0], keys))
    check_layout(drawn)
    for panel in drawn.axes:
        inside = panel.get_window_extent()
        for text in panel.texts:
            box = text.get_window_extent()
            assert inside.x0 <= box.x0
            assert box.x1 <= inside.x1 + 1.0


def test_weights_that_are_not_zero_are_not_printed_as_zero() -> None:
    drawn = steps(explain(["a", "b", "c"], [1.0], [[0.0], [-9.0], [-900.0]], scale=1.0))
    assert [text.get_text().strip() for text in drawn.axes[2].texts] == ["1.000", "<0.001", "0.000"]


def test_a_small_figure_is_readable_or_refused() -> None:
    found = explain([f"w{i}" for i in range(12)], *(torch.ones(*s, 9) for s in ((), (12,), (12,))))
    check_layout(steps(found, top=6, figsize=(2.0, 1.5)))
    with pytest.raises(
        ValueError, match=r"figsize has room for \d keys, got 12: pass a smaller top"
    ):
        steps(found, figsize=(2.0, 1.5))


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="there is nothing to draw"):
        steps(explain([], [1.0], torch.zeros(0, 1)))
