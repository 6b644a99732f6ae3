"""Trace mask_mod and score_mod at the time of a call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

_NUM_INDICES = 4
"""Batch, head, query and key."""


class Traced:
    """A traced `mask_mod` or `score_mod`, independent of later changes of its closure.

    It is traced once, for one pair. Python numbers become constants of the graph, and all tensors
    that it reads are known, from closures, modules and globals.

    Args:
        function: the function.
        device: the device of its tensors.
        score: the dtype of the score, its first argument; None for a mask_mod.
    """

    def __init__(
        self, function: Callable[..., Any], device: torch.device, score: torch.dtype | None = None
    ) -> None:
        self.name = getattr(function, "__name__", "a function")
        # Not in inference mode, whose tensors have no version counter.
        with torch.inference_mode(False), torch.no_grad():
            pair = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(_NUM_INDICES)]
            scores = [] if score is None else [torch.zeros(1, dtype=score, device=device)]
            self._graph = make_fx(function)(*scores, *pair)
        self.keep(lambda tensor: tensor.clone() if tensor.is_inference() else tensor.detach())

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it reads."""
        return tuple(getattr(self._graph, name) for name in self._names())

    def keep(self, keep_tensor: Callable[[Tensor], Tensor]) -> None:
        """Replace each tensor by `keep_tensor(tensor)`."""
        for name in self._names():
            kept = keep_tensor(getattr(self._graph, name))
            delattr(self._graph, name)
            setattr(self._graph, name, kept)

    def __call__(self, *args: Tensor) -> Any:
        """Return the function's results for many pairs."""
        return self._graph(*args)

    def _names(self) -> list[str]:
        nodes = self._graph.graph.nodes
        return list(dict.fromkeys(str(node.target) for node in nodes if node.op == "get_attr"))
