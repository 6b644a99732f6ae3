"""Format numbers, by one rule in evidence, in the terminal and in the report."""

from decimal import ROUND_HALF_UP, Decimal


def share_in_figures(share: float) -> str:
    """Format a share of attention with three digits, as the report does.

    >>> share_in_figures(0.42749), share_in_figures(0.0625)
    ('0.427', '0.063')
    """
    return _rounded(share, 3)


def score_in_figures(score: float) -> str:
    """Format a score on annotated text with two digits, as the report does.

    >>> score_in_figures(0.6249), score_in_figures(0.625)
    ('0.62', '0.63')
    """
    return _rounded(score, 2)


def _rounded(value: float, digits: int) -> str:
    """Round halves away from 0, as `toFixed` in a browser; Python rounds them to even."""
    return str(Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
