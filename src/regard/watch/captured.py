"""What is kept of a call, so that its matrix can be looked into later."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.matrix.index import Index, read
from regard.matrix.scores import Scores
from regard.patterns import Pattern
from regard.patterns.causal import Causal
from regard.patterns.pattern import Both
from regard.patterns.window import Window
from regard.positions import Bias
from regard.positions.from_tensor import FromTensor
from regard.positions.joined import Joined, joined
from regard.versions import Versions

OVERWRITTEN = '{name} was modified in place after the call: watch the model with keep="copies"'


class SharedKeys:
    """Keys that the calls of one module share for as long as each has those of the one before.

    Attributes:
        key: those of the latest call, [batch, key_heads, keys, key_dim].
    """

    def __init__(self, key: Float[Tensor, "batch key_heads keys key_dim"]) -> None:
        self.key = key
        self._versions = Versions([("key", key)])

    def grow(self, key: Float[Tensor, "batch key_heads keys key_dim"], used: int) -> bool:
        """Take over keys if they begin with those that are here, of which so many are in use."""
        mine = self.key[:, :, :used]
        theirs = key[:, :, :used]
        if mine.dtype != theirs.dtype or mine.device != theirs.device:
            return False
        if self.modified() or not torch.equal(mine, theirs):
            return False
        self.key, self._versions = key, Versions([("key", key)])
        return True

    def modified(self) -> bool:
        """Say whether other keys stand in their memory now."""
        return self._versions.modified() is not None


@dataclass(frozen=True, eq=False)
class FirstKeys:
    """The first of shared keys, those of one call; see `LazyTensor`.

    Attributes:
        shared: the keys of this call, and maybe some that came later.
        count: how many of them are those of the call.
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

    def read(self, *where: Index) -> Tensor:
        return read(self.shared.key[:, :, : self.count], *where)

    def modified(self) -> bool:
        return self.shared.modified()


def num_used_keys(source: Scores) -> int:
    """Return how many keys there were when a call was made; there may have been room for more.

    Only a call whose queries look back leaves room unused: others look at all keys.
    """
    _, _, queries, keys = source.shape
    if isinstance(source.query_positions, Tensor) or not looks_back(source.full_pattern):
        return keys
    return min(keys, source.query_positions + queries)


def looks_back(pattern: Pattern) -> bool:
    """Say whether no query may look at keys behind its place, so that later keys change nothing."""
    if isinstance(pattern, Both):
        return looks_back(pattern.first) or looks_back(pattern.second)
    return isinstance(pattern, Causal) or (isinstance(pattern, Window) and pattern.after == 0)


@runtime_checkable
class Keeping(Protocol):
    """A pattern or bias that reads tensors of somebody else, and can be told to read others."""

    def keep(self, keep_tensor: Callable[[Tensor], Tensor]) -> None:
        """Read what `keep_tensor` returns of a tensor, instead of it."""
        ...


def keep(tensor: Tensor, *, always_copy: bool, offload: str | None) -> Tensor:
    """Return a tensor that can be kept.

    It is the same memory unless that would be unsafe or wasteful: memory that isn't told apart when
    it is written over, or more memory than the tensor's own, such as that of a cache with room.
    """
    tensor = tensor.detach()
    own = tensor.numel() * tensor.element_size()
    if always_copy or tensor.is_inference() or tensor.untyped_storage().nbytes() > own:
        with torch.inference_mode(False):
            tensor = tensor.clone()
    return tensor if offload is None else tensor.to(offload)


def keep_bias(bias: Bias | None, keep_tensor: Callable[[Tensor], Tensor]) -> Bias | None:
    """Return a bias that can be kept: what is learned may be learned on.

    Args:
        bias: the bias.
        keep_tensor: returns a tensor that can be kept.
    """
    if isinstance(bias, Joined):
        return joined(*(keep_bias(part, keep_tensor) for part in (bias.first, bias.second)))
    if isinstance(bias, FromTensor):
        return FromTensor(keep_tensor(bias.values), bias.first_query)
    if isinstance(bias, Keeping):
        bias.keep(keep_tensor)
    if isinstance(bias, nn.Module):
        # Without the hooks by which somebody is told when it runs, and all that they lead to.
        hooks = [
            value
            for part in bias.modules()
            for name, value in vars(part).items()
            if "hooks" in name and isinstance(value, dict)
        ]
        copied = copy.deepcopy(bias, {id(one): type(one)() for one in hooks})
        return copied.to(keep_tensor(bias.tensors[0]).device) if bias.tensors else copied
    return bias
