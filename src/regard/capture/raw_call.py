"""A captured call of attention, before its interpretation."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.capture.module_stack import Frame
from regard.capture.product import NarrowedScores, Product
from regard.capture.score_mask import ScoreMask
from regard.patterns import Pattern
from regard.positions import Bias


@dataclass(frozen=True, eq=False, kw_only=True)
class RawCall:
    """The inputs and outputs of a kernel.

    Attributes:
        kernel: the name of the kernel.
        query: the queries.
        key: the keys.
        value: the values.
        output: the output.
        original: the kernel's result, of which output is a view.
        mask: the mask tensor, if any; see `Masks.read`.
        pattern: a pattern in addition to the mask.
        first_query: the position of the first query in the pattern and the bias; by default that of
            the mask.
        placed: whether that is its position in the text, instead of a convention.
        bias: the score bias, applied before `added`.
        added: added to the scores, [batch or 1, heads or 1, queries, keys].
        scale: the factor on the scores; 1/√key_dim if None.
        dropout: the dropout probability.
        sinks: the sink score of each head, [heads].
        weights: the weights that the kernel returned, [batch, heads, queries, keys].
        lse: the log-sum-exp that it returned, [batch, heads, queries].
        kernel_lse: that of its output, if it was seen without being returned.
        instead: the output after ablation of heads, if any.
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
    placed: bool = False
    bias: Bias | None = None
    added: Tensor | None = None
    scale: float | None = None
    dropout: float = 0.0
    sinks: Float[Tensor, "heads"] | None = None
    weights: Tensor | None = None
    lse: Tensor | None = None
    kernel_lse: Tensor | None = None
    instead: Float[Tensor, "batch heads queries value_dim"] | None = None

    @property
    def returned(self) -> Float[Tensor, "batch heads queries value_dim"]:
        """The output for the model."""
        return self.output if self.instead is None else self.instead


class Rank(IntEnum):
    """The order in which listeners receive a call."""

    KNOCK_OUT = 0
    ABLATE = 1
    WATCH = 2


@runtime_checkable
class CallListener(Protocol):
    """A listener to calls.

    Attributes:
        cross: whether the running module is cross-attention, if known.
        rank: listeners of lower rank come first; later ones receive their alterations.
    """

    cross: bool | None
    rank: Rank

    @property
    def wants_lse(self) -> bool:
        """Whether it wants the log-sum-exp of kernels that don't return it."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether it receives calls now."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Pause inside a call that is captured as a whole."""
        ...

    def catch(
        self, kernel: str, module: nn.Module | None, read: Callable[[], RawCall]
    ) -> RawCall | None:
        """Record or alter a call.

        Args:
            kernel: the name of the kernel.
            module: its module; by default the running one.
            read: returns the call.

        Returns:
            The altered call, or None.
        """
        ...

    @property
    def running(self) -> Sequence[Frame]:
        """The running modules, the innermost last."""
        ...

    def narrow(
        self, scores: Tensor, key_axis: int, mask: ScoreMask | None, num_heads: int | None
    ) -> NarrowedScores | None:
        """Mask pairs before the softmax of the running module.

        Args:
            scores: the scores.
            key_axis: the axis of the keys.
            mask: which pairs the model masks; None if unknown.
            num_heads: the number of heads, if known.
        """
        ...

    def catch_product(self, product: Product, num_heads: int | None) -> Tensor | None:
        """Record explicit weights of the running module, at their product with values.

        Args:
            product: the product.
            num_heads: the number of heads, if known.

        Returns:
            The replacement of `product.result`, or None.
        """
        ...

    def catch_lost(self, frame: Frame, reason: str) -> None:
        """Record attention of a module that could not be captured."""
        ...
