"""Self-attention on PyTorch: build it, run it at the speed of the fused kernels, look inside it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import interventions as interventions
    from regard.attention import attend, attend_with_lse, plan
    from regard.attribution import attribute
    from regard.capture import watch
    from regard.interventions import ablate, knock_out, patch, spans, steer
    from regard.matrix import AttentionMatrix, EffectMatrix, NormMatrix, rollout
    from regard.patterns import (
        causal,
        columns,
        documents,
        everyone,
        global_at,
        neighbours,
        padding,
        pairs,
        prefix,
        strided,
        window,
    )
    from regard.recording import open as open
    from regard.recording import save as save
    from regard.server.notebook import map as map
    from regard.views import page

__version__ = "0.2.0"

# Without `open` and `map`, which would shadow builtins after `from regard import *`, and without
# `save`: they need zarr, which is optional.
__all__ = [
    "AttentionMatrix",
    "EffectMatrix",
    "NormMatrix",
    "ablate",
    "attend",
    "attend_with_lse",
    "attribute",
    "causal",
    "columns",
    "documents",
    "everyone",
    "global_at",
    "knock_out",
    "neighbours",
    "padding",
    "page",
    "pairs",
    "patch",
    "plan",
    "prefix",
    "rollout",
    "spans",
    "steer",
    "strided",
    "watch",
    "window",
]

_NAMES = {
    "attention": ("attend", "attend_with_lse", "plan"),
    "attribution": ("attribute",),
    "capture": ("watch",),
    "interventions": ("ablate", "knock_out", "patch", "spans", "steer"),
    "matrix": ("AttentionMatrix", "EffectMatrix", "NormMatrix", "rollout"),
    "patterns": (
        "causal",
        "columns",
        "documents",
        "everyone",
        "global_at",
        "neighbours",
        "padding",
        "pairs",
        "prefix",
        "strided",
        "window",
    ),
    "recording": ("open", "save"),
    "server.notebook": ("map",),
    "views": ("page",),
}
"""The public names of each package. They are loaded on first use: torch takes seconds."""

_PACKAGES = (
    "atlas",
    "attention",
    "attribution",
    "calls",
    "capture",
    "errors",
    "hf",
    "interventions",
    "layers",
    "matrix",
    "models",
    "patterns",
    "positions",
    "recording",
    "views",
)
"""Packages that need not be imported to be used."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __dir__() -> list[str]:
    """List all names, including those that are not loaded yet."""
    own = {"Any", "TYPE_CHECKING", "import_module"}
    return sorted({*globals(), *_HOMES, *_PACKAGES} - own)


def __getattr__(name: str) -> Any:
    """Load a name on first use."""
    if name in _PACKAGES:
        return import_module(f"regard.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"regard.{_HOMES[name]}")
    except ImportError as error:
        if name not in ("map", "open", "save"):
            raise
        message = f'recordings need zarr: pip install "regard[map]" ({error})'
        raise ImportError(message) from error
    found = globals()[name] = getattr(home, name)
    return found
