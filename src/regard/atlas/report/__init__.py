"""The report of a survey: one file to look at in a browser."""

from regard.atlas.report.document import report

__all__ = ["report"]
