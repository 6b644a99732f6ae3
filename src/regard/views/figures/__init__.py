"""Figures for papers, in matplotlib."""

from regard.views.figures.graph import graph
from regard.views.figures.heads import heads
from regard.views.figures.heatmap import heatmap
from regard.views.figures.offsets import offsets
from regard.views.figures.overlay import overlay
from regard.views.figures.steps import steps
from regard.views.figures.tree import tree

__all__ = ["graph", "heads", "heatmap", "offsets", "overlay", "steps", "tree"]
