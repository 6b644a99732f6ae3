"""Pictures of attention: figures, an interactive page, step-by-step explanations."""

from regard.calls.measures import MEASURES, measure, measures
from regard.calls.tokens import readable
from regard.views.explain import Explanation, explain, explain_call, worked_example
from regard.views.figures import graph, heads, heatmap, offsets, overlay, steps, tree
from regard.views.page import Page, page

__all__ = [
    "MEASURES",
    "Explanation",
    "Page",
    "explain",
    "explain_call",
    "graph",
    "heads",
    "heatmap",
    "measure",
    "measures",
    "offsets",
    "overlay",
    "page",
    "readable",
    "steps",
    "tree",
    "worked_example",
]
