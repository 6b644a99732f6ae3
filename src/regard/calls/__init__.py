"""`AttentionCall`, its tokens, and measures of its heads."""

from regard.calls.call import AttentionCall
from regard.calls.check import Check
from regard.calls.measures import MEASURES, measure, measures
from regard.calls.tokens import readable

__all__ = ["MEASURES", "AttentionCall", "Check", "measure", "measures", "readable"]
