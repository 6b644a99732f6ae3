"""One call of attention that was seen."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.matrix import AttentionMatrix
from regard.matrix.reduction import AnyReduction
from regard.patterns import Pattern
from regard.versions import Overwritten
from regard.watch.check import Check
from regard.watch.held import Held, HeldWeights

Kept = TypeVar("Kept", Held, HeldWeights)


@dataclass(eq=False, kw_only=True)
class Call:
    """A call of attention in a watched model.

    Attributes:
        index: its number among the calls that were seen.
        module: the path of the module that made it.
        looks: whether it looked at its own sequence, "self", or at another, "cross".
        kernel: what computed it.
        batch: number of sequences.
        heads: number of query heads.
        key_heads: number of key heads.
        queries: number of queries.
        keys: number of keys.
        dtype: the type of its numbers.
        check: how far the kernel's output is from A @ V.
        results: what each reduction of `keep` found, if there were any.
        problem: why nothing can be seen of it, if so.
        heads_known: whether sequences and heads could be told apart in weights that a model wrote
            out itself. If not, `heads` is 1 and `batch` counts both.
        pattern: who may look at whom; None if it is known by its weights alone.
        held: what is kept of it: queries and keys, weights, or nothing.
    """

    index: int
    module: str
    looks: Literal["self", "cross"]
    kernel: str
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    dtype: torch.dtype
    check: Check
    results: tuple[Any, ...] = ()
    problem: str = ""
    heads_known: bool = True
    pattern: Pattern | None = None
    held: Held | HeldWeights | None = None
    _matrix: AttentionMatrix | None = field(default=None, init=False, repr=False)

    @property
    def matrix(self) -> AttentionMatrix:
        """The attention matrix, [batch, heads, queries, keys], not computed.

        Raises:
            ValueError: it was not kept, or the call was not understood.
            Overwritten: the model has written over its queries or keys since.
        """
        held = self._intact(self.held) if isinstance(self.held, HeldWeights) else self.parts
        if self._matrix is None:
            self._matrix = held.matrix()
        return self._matrix

    def summarize(self, reductions: Sequence[AnyReduction]) -> None:
        """Compute reductions as the results of the call, and let go what it is made of."""
        with torch.autocast(self.matrix.device.type, enabled=False):
            self.results = self.matrix.summarize(*reductions, progress=False)
        self.held = self._matrix = None

    def let_go(self, problem: str) -> None:
        """Let go what was kept, because of a problem."""
        self.problem, self.held, self._matrix, self.results = problem, None, None, ()

    @property
    def query(self) -> Float[Tensor, "batch heads queries key_dim"]:
        """The queries."""
        return self.parts.query

    @property
    def key(self) -> Float[Tensor, "batch key_heads keys key_dim"]:
        """The keys."""
        return self.parts.key

    @property
    def value(self) -> Float[Tensor, "batch key_heads keys value_dim"]:
        """The values.

        Raises:
            ValueError: they were not kept.
        """
        value = self.parts.value
        if value is None:
            raise ValueError(f"{self} has let its values go: watch the model with values=True")
        return value

    @property
    def parts(self) -> Held:
        """Queries and keys, and all else that the matrix is made of.

        Raises:
            ValueError: they were not kept, or the call was not understood.
            Overwritten: the model has written over them since.
        """
        if isinstance(self.held, Held):
            return self._intact(self.held)
        if self.problem:
            raise ValueError(f"{self} was not understood: {self.problem}")
        if isinstance(self.held, HeldWeights):
            raise ValueError(f"{self} is known by its weights alone: it has no more than a matrix")
        raise ValueError(
            f"{self} has let its queries and keys go: watch the model with "
            'keep="tensors" to have them, or look at its results'
        )

    def _intact(self, held: Kept) -> Kept:
        """Return what was kept, unless it was written over."""
        try:
            held.check()
        except Overwritten as error:
            raise Overwritten(f"{self}: {error}") from None
        return held

    @property
    def heads_as_text(self) -> str:
        """The number of heads, and that of key heads if it is another; "?" if it is not known."""
        if not self.heads_known:
            return "?"
        return str(self.heads) if self.heads == self.key_heads else f"{self.heads}/{self.key_heads}"

    def __str__(self) -> str:
        return f"call {self.index} ({self.module or 'the model'})"

    def __repr__(self) -> str:
        return (
            f"Call({self.index}, {self.module!r}, {self.looks}, {self.heads_as_text} heads, "
            f"{self.queries} × {self.keys}, {self.kernel}, {self.check})"
        )
