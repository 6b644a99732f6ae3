"""Functions of a pair of positions, as they were when they were called."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

_PLACES = 4
"""Batch, head, query and key."""


class Traced:
    """What a `mask_mod` or `score_mod` does now, whatever becomes of what it reads.

    It is traced once, for one pair. Numbers of Python that it reads are then part of the graph, and
    the tensors that it reads are known: those of closures, modules and globals alike.

    Args:
        function: the function.
        device: where its tensors lie.
        score: the type of the score that is its first argument; None if it has none.
    """

    def __init__(
        self, function: Callable[..., Any], device: torch.device, score: torch.dtype | None = None
    ) -> None:
        self.name = getattr(function, "__name__", "a function")
        # Not in inference mode, whose tensors have no versions; it is not the model that computes.
        with torch.inference_mode(False), torch.no_grad():
            places = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(_PLACES)]
            scores = [] if score is None else [torch.zeros(1, dtype=score, device=device)]
            self._graph = make_fx(function)(*scores, *places)
        self.keep(lambda tensor: tensor.clone() if tensor.is_inference() else tensor.detach())

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it reads."""
        return tuple(getattr(self._graph, name) for name in self._names())

    def keep(self, keep_tensor: Callable[[Tensor], Tensor]) -> None:
        """Read other tensors from now on.

        Args:
            keep_tensor: returns what is read instead of a tensor.
        """
        for name in self._names():
            kept = keep_tensor(getattr(self._graph, name))
            delattr(self._graph, name)
            setattr(self._graph, name, kept)

    def __call__(self, *args: Tensor) -> Any:
        """Return what the function says of many pairs at once."""
        return self._graph(*args)

    def _names(self) -> list[str]:
        nodes = self._graph.graph.nodes
        return list(dict.fromkeys(str(node.target) for node in nodes if node.op == "get_attr"))
