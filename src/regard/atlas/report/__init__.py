"""The HTML report of a survey."""

from regard.atlas.report.document import report

__all__ = ["report"]
