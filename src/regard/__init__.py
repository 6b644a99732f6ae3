"""Self-attention on PyTorch: build it, run it at the speed of the fused kernels, look inside it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.attention import attend, attend_with_lse, plan
from regard.matrix import AttentionMatrix, EffectMatrix, rollout
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
from regard.watch import watch

if TYPE_CHECKING:
    from regard import effects as effects
    from regard.attribution import attribute
    from regard.effects import ablate, knock_out
    from regard.recording import open as open
    from regard.recording import save as save
    from regard.server.notebook import map as map
    from regard.views import page

__version__ = "0.1.0"

# Without `open` and `map`, which would shadow builtins after `from regard import *`, and without
# `save`: they need zarr, which is optional.
__all__ = [
    "AttentionMatrix",
    "EffectMatrix",
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
    "plan",
    "prefix",
    "rollout",
    "strided",
    "watch",
    "window",
]


def __dir__() -> list[str]:
    """List all names, including those that are not loaded yet."""
    later = {"effects", "map", "open", "save"}
    return sorted({*globals(), *__all__, *later} - {"TYPE_CHECKING", "Any", "import_module"})


def __getattr__(name: str) -> Any:
    """Load what most programs don't use on first use."""
    if name in ("ablate", "effects", "knock_out"):
        effects = import_module("regard.effects")
        return effects if name == "effects" else getattr(effects, name)
    if name == "attribute":
        from regard.attribution import attribute

        return attribute
    if name == "page":
        from regard.views import page

        return page
    if name in ("map", "open", "save"):
        try:
            if name == "map":
                from regard.server.notebook import map as show_map

                return show_map
            from regard import recording
        except ImportError as error:
            message = f'recordings need zarr: pip install "regard[map]" ({error})'
            raise ImportError(message) from error
        return getattr(recording, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
