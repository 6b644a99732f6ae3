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


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="there is nothing to draw"):
        steps(explain([], [1.0], torch.zeros(0, 1)))
