"""Calls that Regard has seen, held against what the model itself says; outputs, against outputs."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.oracle import Witness

WITHIN = 1e-5
"""So far a weight may be from what the model says in the same run, in float32."""

WITHIN_RUNS = 1e-4
"""So far it may be from what the model says in another run, with another kernel."""

OUTPUTS_WITHIN = 1e-3
"""So far an output may be from another, relative to the largest: rounding grows with depth."""


def tensors_in(output: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors of an output with their paths, those of caches too."""
    if isinstance(output, Tensor):
        yield path, output
    elif isinstance(output, dict):
        for name, part in output.items():
            yield from tensors_in(part, f"{path}.{name}" if path else str(name))
    elif isinstance(output, list | tuple):
        for number, part in enumerate(output):
            yield from tensors_in(part, f"{path}[{number}]")
    elif type(output).__name__.endswith(("Cache", "Layer", "Output")) and vars(output):
        for name, part in vars(output).items():
            if isinstance(part, Tensor | list | tuple | dict) or "Cache" in type(part).__name__:
                yield from tensors_in(part, f"{path}.{name}")


def changed(before: Any, after: Any) -> list[str]:
    """Return the paths of tensors that are not bit by bit the same."""
    first, second = dict(tensors_in(before)), dict(tensors_in(after))
    if first.keys() != second.keys():
        return sorted(first.keys() ^ second.keys())
    return [path for path, tensor in first.items() if not _same(tensor, second[path])]


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_floating_point() or one.is_complex():
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    return torch.equal(one, other)


def output_gap(output: Any, expected: Any, masks: Sequence[Tensor]) -> float:
    """Return the largest difference of two outputs, relative to their size, but of padding."""
    first, second = dict(tensors_in(output)), dict(tensors_in(expected))
    worst = 0.0
    for path in first.keys() & second.keys():
        one, other = first[path], second[path]
        if not one.is_floating_point() or "past_key_values" in path or not one.numel():
            continue
        if one.shape != other.shape:
            return torch.inf
        one, other = one.double(), other.double()
        # Infinities that agree are no difference.
        same = (one == other) | (one.isnan() & other.isnan())
        gaps = (one - other).abs().nan_to_num(nan=torch.inf).masked_fill(same, 0.0)
        size = other.abs().nan_to_num(nan=0.0, posinf=0.0).max().clamp(min=1e-6)
        if gaps.dim() > 1:
            gaps = gaps.flatten(start_dim=2).amax(dim=2) if gaps.dim() > 2 else gaps
            worst = max(worst, _largest(gaps, masks) / float(size))
        else:
            worst = max(worst, float(gaps.max() / size))
    return worst


def _largest(gaps: Tensor, masks: Sequence[Tensor]) -> float:
    """Return the largest of some differences, [batch, tokens], but of padding.

    A text may have got a few tokens more in the model, before it or behind it.
    """
    for real in masks:
        batch, length = real.shape
        more = gaps.shape[1] - length
        if gaps.shape[0] == batch and 0 <= more < 3:
            extended = (F.pad(real, (more, 0), value=1), F.pad(real, (0, more), value=1))
            parts = [gaps[one.bool()] for one in extended]
            return min(float(part.max()) if part.numel() else 0.0 for part in parts)
    return float(gaps.max()) if gaps.numel() else 0.0


def gap(found: Tensor, expected: Tensor, masks: Sequence[Tensor]) -> float:
    """Return the largest difference of weights [batch, heads, queries, keys], but of padding.

    A row that may look at nothing is zeros in Regard, and equal weights in eager attention.

    Args:
        found: what Regard says.
        expected: what the model says.
        masks: which tokens are no padding, [batch, length], of texts of different lengths.
    """
    found, expected = found.double(), expected.double()
    gaps = (found - expected).abs().nan_to_num(nan=torch.inf)
    even = (expected * expected.shape[-1] - 1).abs().amax(dim=-1) <= WITHIN
    nothing = (found == 0).all(dim=-1) & even
    return _largest(gaps.masked_fill(nothing[..., None], 0.0).amax(dim=(1, 3)), masks)


class Comparison:
    """Calls held against witnesses.

    Args:
        calls: the calls.
        witnesses: what the model itself says: of this run first, then of others.
        masks: which tokens are no padding; see `gap`.

    Attributes:
        gaps: the difference for each call; None if there was nothing to compare it with.
        differs: whether it is more than rounding, for each call.
        shapes: where there was something of another shape only: the shape.
        unseen: weights of a witness that no call has.
        order: whether what the model returned was seen in the same order.
        notes: what is special about the witnesses.
    """

    def __init__(
        self, calls: Sequence[Any], witnesses: Sequence[Witness], masks: Sequence[Tensor]
    ) -> None:
        self._calls, self._masks = calls, masks
        self._dense = [None if call.problem else call.matrix.dense() for call in calls]
        self.gaps: list[float | None] = [None] * len(calls)
        self.differs = [False] * len(calls)
        self.shapes: list[str] = [""] * len(calls)
        self.unseen: list[str] = []
        self.order = True
        self.notes: list[str] = []
        self._within = WITHIN
        for witness in witnesses:
            self._within = WITHIN if witness is witnesses[0] else WITHIN_RUNS
            apart = _apart(witnesses[0], witness, masks)
            if apart > self._within:
                # Rounding that grows, or kernels that mean something else by a mask.
                size = "rounding" if apart < 1e-3 else f"{apart:.1e}"
                self.notes.append(f"with its own attention and with eager, weights differ ({size})")
                continue
            self._by_module(witness)
            for name, layers in witness.returned.items():
                self._by_content(name, layers)

    def _by_module(self, witness: Witness) -> None:
        """Compare the calls of each module with what it was told, one after the other."""
        paths = dict.fromkeys(path for path, _ in witness.asked)
        for path in paths:
            expected = [weights for where, weights in witness.asked if where == path]
            mine = [n for n, call in enumerate(self._calls) if call.module == path]
            whole = [n for n in mine if self._dense[n] is not None]
            if not mine:
                self.unseen.append(f"{path}: {_size(expected[0])}")
            elif len(whole) == len(expected) == len(mine):
                for number, weights in zip(mine, expected, strict=True):
                    self._hold(number, _with_four_axes(weights), path)
            elif len(whole) == len(mine):
                self.unseen.append(f"{path}: {len(expected)} calls, {len(mine)} seen")

    def _hold(self, number: int, weights: Tensor, name: str) -> None:
        found = self._dense[number]
        if found is None:
            return
        if found.shape != weights.shape:
            self.shapes[number] = f"{name} {_size(weights)}"
            return
        self._record(number, self._gap(number, found, weights))

    def _record(self, number: int, difference: float) -> None:
        self.gaps[number] = max(self.gaps[number] or 0.0, difference)
        self.differs[number] = self.differs[number] or difference > self._within

    def _gap(self, number: int, found: Tensor, weights: Tensor) -> float:
        difference = gap(found, weights, self._masks)
        if (
            difference > self._within
            and getattr(self._calls[number].source, "sinks", None) is not None
        ):
            whole = found / found.sum(dim=-1, keepdim=True)
            before_sink = gap(whole, weights, self._masks)
            if before_sink <= self._within:
                self.notes.append("it returns weights without the share of its sinks")
                return before_sink
        return difference

    def _by_content(self, name: str, layers: Sequence[Tensor]) -> None:
        """Find the call of each layer that a model has returned the weights of."""
        latest = -1
        taken: set[int] = set()
        for layer in layers:
            if _is_deformable(layer):
                self.notes.append(
                    "its weights of sampled points (deformable attention) are not seen"
                )
                continue
            weights = _with_four_axes(layer)
            are_weights = is_weights(weights)
            if not are_weights:
                weights = weights.softmax(dim=-1)
            # Of calls that fit alike, as all do that look at one key, the whole ones that nothing
            # was held against yet come first.
            fits = [
                (self._gap(number, part, expected), part is not found, number in taken, number)
                for number, found in enumerate(self._dense)
                if found is not None
                for part, expected in _parts(found, weights)
            ]
            difference, _, _, number = min(fits, default=(torch.inf, False, False, -1))
            if not are_weights:
                what = (
                    "scores, of which a softmax is taken"
                    if difference <= self._within
                    else "no weights"
                )
                self.notes.append(f"its {name} are {what}")
                if difference > self._within:
                    continue
            if not fits:
                if not any(call.problem for call in self._calls):
                    self.unseen.append(f"{name}: {_size(layer)}")
                continue
            if difference <= self._within:
                taken.add(number)
                self._record(number, difference)
                self.order = self.order and number >= latest
                latest = number
            elif self.gaps[number] is None:
                self._record(number, difference)
            else:
                self.unseen.append(f"{name}: {_size(layer)} differs by {difference:.0e}")


def _apart(one: Witness, other: Witness, masks: Sequence[Tensor]) -> float:
    """Return how far two witnesses are from each other, where both say something."""
    worst = 0.0
    for path in {path for path, _ in one.asked}:
        first, second = (
            [weights for where, weights in witness.asked if where == path]
            for witness in (one, other)
        )
        for mine, theirs in zip(first, second, strict=False):
            if mine.shape == theirs.shape and mine is not theirs:
                both = (_with_four_axes(weights) for weights in (mine, theirs))
                worst = max(worst, gap(*both, masks))
    return worst


def is_weights(tensor: Tensor) -> bool:
    """Say whether rows are shares of something: not negative, and not more than 1 in sum."""
    if tensor.isnan().any():
        return True
    return bool((tensor >= 0).all() and (tensor.sum(dim=-1) <= 1 + 1e-3).all())


def _is_deformable(weights: Tensor) -> bool:
    """Say whether weights are of points, [batch, queries, heads, maps, points]."""
    sums = weights.sum(dim=(-2, -1))
    return weights.dim() == 5 and bool(((sums - 1).abs() < 1e-3).all())


def _parts(found: Tensor, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what of a call may be what a model returns, and that in the same shape."""
    _, heads, queries, keys = found.shape
    if found.shape == weights.shape:
        yield found, weights
        if heads > 1 and bool((weights == weights[:, :1]).all()):
            yield found.mean(dim=1, keepdim=True).expand_as(found), weights
    elif [*weights.shape[2:]] == [queries, keys] and weights.numel() == found.numel():
        # Sequences, windows and heads on one axis.
        yield found, weights.reshape(found.shape)
    elif weights.shape[:2] == found.shape[:2]:
        # Without a prefix, or one of two texts that were looked at together.
        rows, columns = weights.shape[2:]
        if rows <= queries and columns <= keys:
            yield found[:, :, -rows:, -columns:], weights
            yield found[:, :, -rows:, :columns], weights


def _with_four_axes(weights: Tensor) -> Tensor:
    if weights.dim() == 3:
        return weights[:, None]
    return weights.flatten(end_dim=-4) if weights.dim() > 4 else weights


def _size(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape))
