"""Capture the exact attention of a running model, with its own kernels.

    with regard.watch(model) as seen:
        model(**inputs)
    seen[5].matrix

`watch` returns `Seen`, a sequence of calls; each `AttentionCall` has an `AttentionMatrix`.
"""

from regard.calls import AttentionCall, Check
from regard.calls.outputs import HeadEffects
from regard.capture.seen import Seen, SeenEffects, SeenEngine, SeenRequests
from regard.capture.watch import watch
from regard.versions import Overwritten

__all__ = [
    "AttentionCall",
    "Check",
    "HeadEffects",
    "Overwritten",
    "Seen",
    "SeenEffects",
    "SeenEngine",
    "SeenRequests",
    "watch",
]
