"""What is kept of a call, so that its matrix can be looked into later."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.matrix import AttentionMatrix
from regard.patterns import Pattern
from regard.positions import Bias
from regard.positions.given import Given
from regard.positions.joined import Joined, joined
from regard.versions import Overwritten, Versions


class Room:
    """Keys that the calls of one module share for as long as each has those of the one before.

    Attributes:
        key: those of the latest call, [batch, key_heads, keys, key_dim].
    """

    def __init__(self, key: Float[Tensor, "batch key_heads keys key_dim"]) -> None:
        self.key = key
        self._versions = Versions([("keys", key)])

    def grow(self, key: Float[Tensor, "batch key_heads keys key_dim"], used: int) -> bool:
        """Take over keys if they begin with those that are here, of which so many are in use."""
        mine = self.key[:, :, :used]
        theirs = key[:, :, :used]
        if mine.dtype != theirs.dtype or mine.device != theirs.device:
            return False
        if self._versions.modified() or not torch.equal(mine, theirs):
            return False
        self.key, self._versions = key, Versions([("keys", key)])
        return True

    def check(self) -> None:
        """Raise `Overwritten` if other keys stand in their memory now."""
        _check(self._versions)


def _check(versions: Versions) -> None:
    """Raise `Overwritten` if a tensor was modified in place."""
    if (name := versions.modified()) is not None:
        raise Overwritten(
            f"the model wrote over its {name} after the call, in the same memory; "
            'watch it with keep="copies"'
        )


@dataclass(eq=False)
class Held:
    """Queries, keys and what they mean.

    Attributes:
        query: [batch, heads, queries, key_dim].
        room: has the keys of the call, and maybe those that came later.
        num_keys: how many of them are those of the call.
        pattern: who may look at whom.
        bias: what order does to a score.
        scale: the factor on the scores; 1/√key_dim if None.
        sinks: a score for each head that takes its share of every row, [heads].
        positions: where the first query stands, or where each one does.
        value: [batch, key_heads, keys, value_dim], if values are kept.
    """

    query: Float[Tensor, "batch heads queries key_dim"]
    room: Room
    num_keys: int
    pattern: Pattern
    bias: Bias | None
    scale: float | None
    sinks: Float[Tensor, "heads"] | None
    positions: int | Int[Tensor, "queries"]
    value: Float[Tensor, "batch key_heads keys value_dim"] | None = None
    _versions: Versions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        added = () if self.bias is None else self.bias.tensors
        parts = [("queries", self.query), *(("bias", tensor) for tensor in added)]
        parts += [("mask", tensor) for leaf in self.pattern.leaves() for tensor in leaf.tensors]
        if self.value is not None:
            parts.append(("values", self.value))
        self._versions = Versions(parts)

    @property
    def key(self) -> Float[Tensor, "batch key_heads keys key_dim"]:
        """The keys of the call."""
        return self.room.key[:, :, : self.num_keys]

    @property
    def query_positions(self) -> Int[Tensor, "queries"]:
        """Where the queries stand among the keys."""
        if isinstance(self.positions, Tensor):
            return self.positions
        return torch.arange(self.positions, self.positions + self.query.shape[2], device="cpu")

    def check(self) -> None:
        """Raise `Overwritten` if the model has written over what was kept."""
        _check(self._versions)
        self.room.check()

    @property
    def used(self) -> int:
        """How many keys there were when the call was made; there may have been room for more."""
        if isinstance(self.positions, Tensor):
            return self.num_keys
        return min(self.num_keys, self.positions + self.query.shape[2])

    def matrix(self) -> AttentionMatrix:
        """Return the attention matrix."""
        return AttentionMatrix(
            self.query,
            self.key,
            pattern=self.pattern,
            bias=self.bias,
            scale=self.scale,
            sinks=self.sinks,
            positions=self.positions,
        )


class HeldWeights:
    """Weights that were written down.

    Args:
        weights: [batch, heads, queries, keys].
    """

    def __init__(self, weights: Float[Tensor, "batch heads queries keys"]) -> None:
        self.weights = weights
        self._versions = Versions([("weights", weights)])

    def check(self) -> None:
        """Raise `Overwritten` if the model has written over them."""
        _check(self._versions)

    def matrix(self) -> AttentionMatrix:
        """Return the attention matrix."""
        # They are what the model made them: dropout, say, scales them up.
        return AttentionMatrix.from_weights(self.weights, check=False)


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
    if isinstance(bias, Given):
        return Given(keep_tensor(bias.values), bias.first_query)
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
