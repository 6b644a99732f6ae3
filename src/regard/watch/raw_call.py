"""A call of attention as it was caught, not yet understood."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.patterns import Pattern
from regard.positions import Bias
from regard.watch.module_stack import Frame
from regard.watch.product import NarrowedScores, Product


@dataclass(frozen=True, eq=False, kw_only=True)
class RawCall:
    """What a kernel was given and what it returned.

    Attributes:
        kernel: what computed it.
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim].
        value: [batch, key_heads, keys, value_dim].
        output: [batch, heads, queries, value_dim].
        original: the tensor of which output is a view, and of which the model gets one.
        mask: what it was told as a tensor about who may look at whom; see `Masks.read`.
        pattern: who may look at whom of those whom the mask allows.
        first_query: where the first query stands for the pattern, if there is no mask to tell.
        bias: what is done to scores before anything is added to them.
        added: numbers to add to the scores, [batch or 1, heads or 1, queries, keys].
        scale: the factor on the scores; 1/√key_dim if None.
        dropout: the share of the weights that was dropped.
        sinks: a score for each head that takes its share of every row, [heads].
        weights: what the kernel returned as its weights, [batch, heads, queries, keys].
        lse: what it returned as its log-sum-exp, [batch, heads, queries].
        instead: what the model gets instead of the output, if somebody has ablated heads.
    """

    kernel: str
    query: Float[Tensor, "batch heads queries key_dim"]
    key: Float[Tensor, "batch key_heads keys key_dim"]
    value: Float[Tensor, "batch key_heads keys value_dim"]
    output: Float[Tensor, "batch heads queries value_dim"]
    original: Tensor
    mask: Tensor | None = None
    pattern: Pattern | None = None
    first_query: int | Tensor | None = None
    bias: Bias | None = None
    added: Tensor | None = None
    scale: float | None = None
    dropout: float = 0.0
    sinks: Float[Tensor, "heads"] | None = None
    weights: Tensor | None = None
    lse: Tensor | None = None
    instead: Float[Tensor, "batch heads queries value_dim"] | None = None

    @property
    def returned(self) -> Float[Tensor, "batch heads queries value_dim"]:
        """What the model gets."""
        return self.output if self.instead is None else self.instead


class Rank(IntEnum):
    """The order in which those are told who are to be told of a call."""

    KNOCK_OUT = 0
    ABLATE = 1
    WATCH = 2


@runtime_checkable
class CallListener(Protocol):
    """Who is told of calls.

    Attributes:
        cross: whether what is running looks at another sequence, if somebody knows.
        rank: those of a lower one are told first, and what they alter is what others are told of.
    """

    cross: bool | None
    rank: Rank

    @property
    def is_active(self) -> bool:
        """Whether it wants to be told now."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Look away while something runs that is caught as a whole."""
        ...

    def catch(
        self, kernel: str, module: nn.Module | None, read: Callable[[], RawCall]
    ) -> RawCall | None:
        """Take a call down, or alter it.

        Args:
            kernel: what computed it.
            module: what made it; the one that is running, if that isn't known.
            read: says what it was.

        Returns:
            The call as it is to be from now on; None if it is left as it is.
        """
        ...

    @property
    def running(self) -> Sequence[Frame]:
        """The modules that are running, the innermost last."""
        ...

    def narrow(self, scores: Tensor, key_axis: int, num_heads: int | None) -> NarrowedScores | None:
        """Forbid pairs before the running module takes a softmax of their scores.

        Args:
            scores: the scores.
            key_axis: the axis of the keys.
            num_heads: how many heads there are, if that is known.
        """
        ...

    def catch_product(self, product: Product, num_heads: int | None) -> Tensor | None:
        """Take down weights that the running module has made by itself, and multiplied.

        Args:
            product: the weights, what they were multiplied with, and what came out.
            num_heads: how many heads there are, if that is known.

        Returns:
            What the module is to get instead of `product.result`; None if it is left as it is.
        """
        ...

    def catch_lost(self, frame: Frame, reason: str) -> None:
        """Take down that a module may have computed attention that can't be looked into."""
        ...
