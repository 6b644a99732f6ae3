"""Attention step by step: of given vectors, of a worked example, of a real model."""

from regard.views.explain.explanation import Explanation, explain, explain_call
from regard.views.explain.worked_example import worked_example

__all__ = ["Explanation", "explain", "explain_call", "worked_example"]
