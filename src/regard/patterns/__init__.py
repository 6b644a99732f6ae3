"""Attention masks as predicates over positions, combined with `&`, `|` and `~`.

A pattern is an n × n tensor only on request. `allows` returns the mask of a rectangle; `cover`
classifies it as NONE, SOME or ALL without visiting its pairs. Everything else (block lists,
FlexAttention's BlockMask, tile skipping) is derived from these two.
"""

from regard.patterns.documents import documents
from regard.patterns.from_mask import from_mask
from regard.patterns.global_at import global_at
from regard.patterns.layout import Layout, layout
from regard.patterns.neighbours import neighbours
from regard.patterns.padding import padding
from regard.patterns.pairs import pairs
from regard.patterns.pattern import Cover, Pattern, everyone
from regard.patterns.regular import causal, columns, prefix, strided, window

__all__ = [
    "Cover",
    "Layout",
    "Pattern",
    "causal",
    "columns",
    "documents",
    "everyone",
    "from_mask",
    "global_at",
    "layout",
    "neighbours",
    "padding",
    "pairs",
    "prefix",
    "strided",
    "window",
]
