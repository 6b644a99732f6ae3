"""Compare the calls of a generation step together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.check import ROWS, Check, row_gaps, tolerance
from regard.internals import without_torch_function
from regard.matrix.scores import Scores
from regard.patterns import everyone
from regard.patterns.pattern import Everyone

_BYTES = 1 << 25
"""Size of the values that wait to be compared."""


class StepChecks:
    """Compares calls of few queries together: on small tensors, operators are mostly overhead.

    A check that is read earlier is made then.
    """

    def __init__(self) -> None:
        self._waiting: list[_Gap] = []
        self._num_bytes = 0

    def add(
        self,
        source: Scores,
        value: Float[Tensor, "batch key_heads keys value_dim"],
        output: Float[Tensor, "batch heads queries value_dim"],
    ) -> Check | None:
        """Return the check of a call, to be made later; None if there is nothing to gain.

        Args:
            source: the scores of the call.
            value: its values.
            output: the kernel's output.
        """
        num_bytes = value.numel() * value.element_size()
        few = 0 < source.shape[2] <= ROWS and 0 < num_bytes <= _BYTES // 8
        plain = source.bias is None and source.sinks is None
        if not (few and plain and isinstance(source.pattern, Everyone)):
            return None
        query, key = source.query, source.key
        assert isinstance(query, Tensor)
        assert isinstance(key, Tensor)
        # The model may overwrite them.
        gap = _Gap(_Step(query.clone(), key.clone(), value.clone(), output.clone(), source.scale))
        self._waiting.append(gap)
        self._num_bytes += num_bytes
        if self._num_bytes > _BYTES:
            self.run()
        return Check(gap, tolerance(output.dtype))

    def run(self) -> None:
        """Compare all calls that wait."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        alike: dict[object, list[tuple[_Gap, _Step]]] = {}
        for gap in waiting:
            if (step := gap.step) is not None:
                alike.setdefault(step.kind, []).append((gap, step))
        for some in alike.values():
            found = _largest_gaps([step for _, step in some])
            for (gap, _), one in zip(some, found.unbind(), strict=True):
                gap.found, gap.step = one, None


class _Step(NamedTuple):
    """Copies of the tensors of a call."""

    query: Float[Tensor, "batch heads queries key_dim"]
    key: Float[Tensor, "batch key_heads keys key_dim"]
    value: Float[Tensor, "batch key_heads keys value_dim"]
    output: Float[Tensor, "batch heads queries value_dim"]
    scale: float

    @property
    def kind(self) -> object:
        """A key of calls that can be compared together."""
        shapes = self.query.shape, self.key.shape, self.value.shape
        return shapes, self.query.dtype, self.output.dtype, self.query.device, self.scale


@dataclass(eq=False)
class _Gap:
    """The largest difference of a call.

    Attributes:
        step: its tensors until it is found.
        found: the difference.
    """

    step: _Step | None
    found: Float[Tensor, ""] | None = None

    def item(self) -> float:
        if (step := self.step) is not None:
            self.found, self.step = _largest_gaps([step])[0], None
        assert self.found is not None
        return self.found.item()


@torch.no_grad()
def _largest_gaps(steps: Sequence[_Step]) -> Float[Tensor, "steps"]:
    """Return the largest difference of each call."""
    tensors = list(zip(*steps, strict=True))[:4]
    # Whoever reads a check inside a watched model must not be watched.
    with without_torch_function():
        query, key, value, output = (torch.cat(parts) for parts in tensors)
        source = Scores(query, key, everyone(), None, steps[0].scale, None, 0)
        gaps = row_gaps(source, value, output, range(output.shape[2]))
        return gaps.view(len(steps), -1).amax(dim=1)
