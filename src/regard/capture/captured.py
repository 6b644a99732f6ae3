"""Tensors of a call that are kept for its matrix."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.call import Attention, Index
from regard.matrix.source import read
from regard.patterns import Pattern
from regard.patterns.pattern import Both
from regard.patterns.regular import Causal, Window
from regard.positions import Bias
from regard.versions import Versions

OVERWRITTEN = '{name} was modified in place after the call: watch the model with keep="copies"'


class SharedKeys:
    """Keys shared by the calls of a module while each call extends the keys of the one before.

    Attributes:
        key: the keys of the latest call.
    """

    def __init__(self, key: Float[Tensor, "batch key_heads keys key_dim"]) -> None:
        self.key = key
        self._versions = Versions([("key", key)])

    def grow(self, key: Float[Tensor, "batch key_heads keys key_dim"], used: int) -> bool:
        """Replace the keys by longer ones if these begin with the `used` first of the former."""
        if key.shape[2] < used:
            return False
        former, latter = self.key.narrow(2, 0, used), key.narrow(2, 0, used)
        if former.dtype != latter.dtype or former.device != latter.device:
            return False
        if self.modified() or not _same_bits(former, latter):
            return False
        self.key, self._versions = key, Versions([("key", key)])
        return True

    def modified(self) -> bool:
        """Return whether the keys were modified in place."""
        return self._versions.modified() is not None


def _same_bits(first: Tensor, second: Tensor) -> bool:
    # On the CPU, integers are compared several times as fast.
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[first.element_size()]
    return torch.equal(first.view(kind), second.view(kind))


@dataclass(frozen=True, eq=False)
class FirstKeys:
    """The keys of one call, the first of shared keys; see `LazyTensor`.

    Attributes:
        shared: the keys of this call and of later ones.
        count: the number of keys of the call.
    """

    shared: SharedKeys
    count: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, key_heads, _, key_dim = self.shared.key.shape
        return batch, key_heads, self.count, key_dim

    @property
    def dtype(self) -> torch.dtype:
        return self.shared.key.dtype

    @property
    def device(self) -> torch.device:
        return self.shared.key.device

    def read(self, *indices: Index) -> Tensor:
        return read(self.shared.key[:, :, : self.count], *indices)

    def modified(self) -> bool:
        return self.shared.modified()


def num_used_keys(call: Attention) -> int:
    """Return the number of used keys of a call: a static cache may have more.

    Only causal calls can have unused keys; others attend to all keys.
    """
    first = call.first_position
    if first is None or not looks_back(call.pattern):
        return call.num_keys
    return min(call.num_keys, first + call.num_queries)


def looks_back(pattern: Pattern) -> bool:
    """Return whether a pattern is causal, so that later keys change nothing."""
    if isinstance(pattern, Both):
        return looks_back(pattern.first) or looks_back(pattern.second)
    return isinstance(pattern, Causal) or (isinstance(pattern, Window) and pattern.after == 0)


@runtime_checkable
class Keeping(Protocol):
    """A pattern or bias that reads the model's tensors, which can be replaced by copies."""

    def keep(self, keep_tensor: Callable[[Tensor], Tensor]) -> None:
        """Replace each tensor by `keep_tensor(tensor)`."""
        ...


def keep(tensor: Tensor, *, always_copy: bool, offload: str | None) -> Tensor:
    """Return a tensor that can be kept.

    It shares memory unless that is unsafe (writes to it can't be detected) or wasteful (its storage
    is larger than the tensor, as of a static cache).
    """
    tensor = tensor.detach()
    own = tensor.numel() * tensor.element_size()
    if always_copy or tensor.is_inference() or tensor.untyped_storage().nbytes() > own:
        with torch.inference_mode(False):
            tensor = tensor.clone()
    return tensor if offload is None else tensor.to(offload)


def keep_bias(bias: Bias, keep_tensor: Callable[[Tensor], Tensor]) -> Bias:
    """Return a bias that can be kept, with copies of learned tensors, which training changes.

    Args:
        bias: the bias; those of numbers are kept by `Attention.kept`.
        keep_tensor: returns a tensor that can be kept.
    """
    if isinstance(bias, Keeping):
        bias.keep(keep_tensor)
    if isinstance(bias, nn.Module):
        # Without hooks, which hold references to the watcher.
        hooks = [
            value
            for part in bias.modules()
            for name, value in vars(part).items()
            if "hooks" in name and isinstance(value, dict)
        ]
        copied = copy.deepcopy(bias, {id(registry): type(registry)() for registry in hooks})
        return copied.to(keep_tensor(bias.tensors[0]).device) if bias.tensors else copied
    return bias
