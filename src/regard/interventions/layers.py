"""Layers as users name them, and the modules that they are.

Which modules call attention is known only when they run. So a name is checked three times: that it
matches any module (at once), that a number is one module (`record_call`), and that each layer has
called attention (`check`, at the end of the block).
"""

from collections.abc import Iterable

from torch import nn

from regard.capture.module_stack import named_modules
from regard.capture.where import is_meant, some_names

Layer = int | str
"""The number of a layer, or the path of a module, with wildcards if need be."""


class Layers:
    """The layers of a model that are changed.

    Args:
        model: the model.
        layers: numbers of layers, or paths of modules; None for all.
        argument: the name of the argument, for errors.

    Raises:
        TypeError: one is neither a number nor a path.
        ValueError: one names no module of the model.
    """

    def __init__(self, model: nn.Module, layers: Iterable[Layer] | None, argument: str) -> None:
        self.named = None if layers is None else list(dict.fromkeys(layers))
        self._modules: dict[Layer | None, set[str]] = {}
        names = [name for name, _ in named_modules(model)]
        for layer in self.named or ():
            if isinstance(layer, bool) or not isinstance(layer, int | str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"{argument}: a layer must be its number or the path of a module, got {layer!r}"
                )
            if not any(is_meant(name, layer) for name in names):
                hint = some_names(named_modules(model))
                raise ValueError(f"{argument}: {layer!r} names no layer of the model; {hint}")

    def of(self, module: str) -> list[Layer]:
        """Return the layers that a module is, by the user's names."""
        return [layer for layer in self.named or () if is_meant(module, layer)]

    def heads_of(self, module: str, pairs: Iterable[tuple[Layer, int]]) -> list[int]:
        """Return the heads of a module among pairs of a layer and a head, in order."""
        layers = self.of(module)
        return sorted({head for layer, head in pairs if layer in layers})

    def has(self, module: str) -> bool:
        """Return whether a module is one of them."""
        return self.named is None or bool(self.of(module))

    def record_call(self, module: str) -> None:
        """Record that a module has called attention.

        Raises:
            ValueError: the number of a layer means several modules.
        """
        for layer in [None] if self.named is None else self.of(module):
            modules = self._modules.setdefault(layer, set())
            modules.add(module)
            if isinstance(layer, int) and len(modules) > 1:
                both = " and ".join(sorted(modules))
                raise ValueError(f"layer {layer} is {both}: name one of them by its path")

    def check(self) -> None:
        """Raise RuntimeError if a layer has not called attention at all."""
        named = [None] if self.named is None else self.named
        missing = [layer for layer in named if layer not in self._modules]
        if missing:
            which = "no layer has" if missing == [None] else f"layer {missing[0]!r} has not"
            raise RuntimeError(
                f"{which} called attention inside the block, or none that can be seen: call the "
                "model there, in this thread; regard.watch(model) shows the modules that do"
            )
