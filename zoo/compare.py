"""Calls that Regard has seen, held against what the model itself says; outputs, against outputs."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.oracle import Witness

WITHIN = 1e-5
"""So far a weight may be from what the model says, in float32."""


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
    elif type(output).__name__.endswith(("Cache", "Layer", "Output")) and hasattr(output, "__dict__"):
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
    gaps = gaps.masked_fill(nothing[..., None], 0.0).amax(dim=(1, 3))
    for real in masks:
        if real.shape == gaps.shape:
            gaps = gaps[real.bool()]
            break
    return float(gaps.max()) if gaps.numel() else 0.0


class Comparison:
    """Calls held against witnesses.

    Args:
        calls: the calls.
        witnesses: what the model itself says, once or several times.
        masks: which tokens are no padding; see `gap`.

    Attributes:
        gaps: the difference for each call; None if there was nothing to compare it with.
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
        self.shapes: list[str] = [""] * len(calls)
        self.unseen: list[str] = []
        self.order = True
        self.notes: list[str] = []
        for witness in witnesses:
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
        difference = self._gap(number, found, weights)
        before = self.gaps[number]
        self.gaps[number] = difference if before is None else max(before, difference)

    def _gap(self, number: int, found: Tensor, weights: Tensor) -> float:
        difference = gap(found, weights, self._masks)
        if difference > WITHIN and getattr(self._calls[number].held, "sinks", None) is not None:
            # Some models return their weights before the sink has taken its share.
            whole = found / found.sum(dim=-1, keepdim=True)
            before_sink = gap(whole, weights, self._masks)
            if before_sink <= WITHIN:
                self.notes.append("the model returns weights without the share of its sinks")
                return before_sink
        return difference

    def _by_content(self, name: str, layers: Sequence[Tensor]) -> None:
        """Find the call of each layer that a model has returned the weights of."""
        latest = -1
        for layer in layers:
            weights = _with_four_axes(layer)
            are_weights = is_weights(weights)
            if not are_weights:
                weights = weights.softmax(dim=-1)
            fits = [
                (self._gap(number, part, weights), number)
                for number, found in enumerate(self._dense)
                if found is not None
                for part in _parts(found, weights)
            ]
            difference, number = min(fits, default=(torch.inf, -1))
            if not are_weights:
                what = "scores, of which a softmax is taken" if difference <= WITHIN else "no weights"
                self.notes.append(f"{name} of the model are {what}")
                if difference > WITHIN:
                    continue
            if not fits:
                if not any(call.problem for call in self._calls):
                    self.unseen.append(f"{name}: {_size(layer)}")
                continue
            before = self.gaps[number]
            if difference <= WITHIN:
                self.gaps[number] = difference if before is None else max(before, difference)
                self.order = self.order and number >= latest
                latest = number
            elif before is None:
                self.gaps[number] = difference
            else:
                self.unseen.append(f"{name}: {_size(layer)} differs by {difference:.0e}")


def is_weights(tensor: Tensor) -> bool:
    """Say whether rows are shares of something: not negative, and not more than 1 in sum."""
    if tensor.isnan().any():
        return True
    return bool((tensor >= 0).all() and (tensor.sum(dim=-1) <= 1 + 1e-3).all())


def _parts(found: Tensor, weights: Tensor) -> list[Tensor]:
    """Return what of a call may be what a model returns: all, or all without a prefix."""
    if found.shape == weights.shape:
        return [found]
    queries, keys = weights.shape[-2:]
    if found.shape[:2] != weights.shape[:2] or queries > found.shape[2] or keys > found.shape[3]:
        return []
    return [found[:, :, -queries:, -keys:]]


def _with_four_axes(weights: Tensor) -> Tensor:
    return weights[:, None] if weights.dim() == 3 else weights


def _size(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape))


OUTPUTS_WITHIN = 1e-3
"""So far an output may be from another, relative to the largest: rounding grows with depth."""


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
        for real in masks:
            if one.dim() > 1 and one.shape[:2] == real.shape:
                one, other = one[real.bool()], other[real.bool()]
                break
        if not one.numel():
            continue
        # Infinities that agree are no difference.
        same = (one == other) | (one.isnan() & other.isnan())
        gaps = (one - other).abs().nan_to_num(nan=torch.inf).masked_fill(same, 0.0)
        size = other.abs().nan_to_num(nan=0.0, posinf=0.0).max().clamp(min=1e-6)
        worst = max(worst, float(gaps.max() / size))
    return worst
