"""Figures whose text stays text; imported when the first one is drawn."""

from io import BytesIO
from typing import Any

from matplotlib import rc_context  # noqa: TID253
from matplotlib.figure import Figure  # noqa: TID253

_AS_TEXT: Any = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}
"""TrueType fonts in PDF, as journals ask for, and text elements in SVG."""


class TextFigure(Figure):
    """A figure that is saved with its text as text, and that notebooks show without pyplot."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write a file, as `matplotlib.figure.Figure.savefig` does."""
        with rc_context(_AS_TEXT):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
