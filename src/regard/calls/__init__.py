"""One call of attention, its tokens, and a few numbers for each of its heads."""

from regard.calls.call import AttentionCall
from regard.calls.check import Check
from regard.calls.measures import MEASURES, measure, measures
from regard.calls.tokens import readable

__all__ = ["MEASURES", "AttentionCall", "Check", "measure", "measures", "readable"]
