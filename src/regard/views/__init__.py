"""Pictures of attention: figures for papers, a page to explore, steps explained."""

from regard.views.explain import Explanation, explain, explain_call, worked_example
from regard.views.graph import graph
from regard.views.heads import heads
from regard.views.heatmap import heatmap
from regard.views.measures import MEASURES, measure, measures
from regard.views.offsets import offsets
from regard.views.overlay import overlay
from regard.views.page import Page, page
from regard.views.pieces import readable
from regard.views.tree import tree

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
    "tree",
    "worked_example",
]
