"""Select modules of a model."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import nn

Where = str | int | Callable[[str, nn.Module], bool]
"""A module's path, with wildcards; a layer's number; or a function of a path and its module."""


def check_model(model: object) -> None:
    """Raise TypeError unless a model is a module."""
    if isinstance(model, nn.Module):
        return
    hint = ""
    if isinstance(model, str):
        hint = "; load it first"
    elif isinstance(getattr(model, "model", None), nn.Module):
        hint = "; use its .model"
    raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}{hint}")


def wanted(where: Where | Iterable[str | int] | None) -> Callable[[str, nn.Module], bool]:
    """Return a function that tells whether a module is selected."""
    if where is None:
        return lambda name, module: True
    if callable(where):
        return where
    chosen = list(where) if isinstance(where, Iterable) and not isinstance(where, str) else [where]
    for selector in chosen:
        if isinstance(selector, bool) or not isinstance(selector, str | int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "where must be a module's path, a layer's number, a list of these, or a function "
                f"of a path and its module, got {selector!r}"
            )
    return lambda name, module: any(is_meant(name, selector) for selector in chosen)


def is_meant(name: str, selector: str | int) -> bool:
    """Return whether a path, or a parent of it, matches a path or a layer's number.

    >>> name = "decoder.layers.5.self_attn"
    >>> is_meant(name, 5), is_meant(name, "decoder.layers.*"), is_meant(name, "layers.5")
    (True, True, False)
    """
    parts = name.split(".")
    if isinstance(selector, int):
        # The first number of a path: experts and heads may be numbered too.
        return selector in [int(part) for part in parts if part.isdecimal()][:1]
    paths = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return any(fnmatchcase(path, selector) for path in paths)


def some_names(modules: Iterable[tuple[str, nn.Module]]) -> str:
    """Return a message with a few modules of a model, those with children first."""
    children = [(name, module) for name, module in modules if name]
    if not children:
        return "it has no children: leave where out"

    children.sort(key=lambda named: next(named[1].children(), None) is None)
    return f"some are {[name for name, _ in children[:5]]}"
