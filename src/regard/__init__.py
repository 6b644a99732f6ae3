"""Self-attention on PyTorch: build it, run it at the speed of the fused kernels, look inside it."""

from regard.attention import attend, attend_with_lse, plan
from regard.matrix import AttentionMatrix, rollout
from regard.patterns import (
    causal,
    columns,
    documents,
    everyone,
    global_at,
    neighbours,
    padding,
    prefix,
    strided,
    window,
)
from regard.watch import watch

__version__ = "0.1.0.dev0"

__all__ = [
    "AttentionMatrix",
    "attend",
    "attend_with_lse",
    "causal",
    "columns",
    "documents",
    "everyone",
    "global_at",
    "neighbours",
    "padding",
    "plan",
    "prefix",
    "rollout",
    "strided",
    "watch",
    "window",
]
