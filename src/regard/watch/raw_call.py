"""A call of attention as it was caught, not yet understood."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.patterns import Pattern
from regard.positions import Bias
from regard.watch.module_stack import Frame
from regard.watch.product import Product


@dataclass(frozen=True, eq=False, kw_only=True)
class RawCall:
    """What a kernel was given and what it returned.

    Attributes:
        kernel: what computed it.
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim].
        value: [batch, key_heads, keys, value_dim].
        output: [batch, heads, queries, value_dim].
        returned: what the kernel returned, of which output is a view.
        mask: what it was told as a tensor about who may look at whom; see `Masks.read`.
        pattern: who may look at whom of those whom the mask allows.
        first_query: where the first query stands for the pattern, if there is no mask to tell.
        bias: what is done to scores before anything is added to them.
        added: numbers to add to the scores, [batch or 1, heads or 1, queries, keys].
        scale: the factor on the scores; 1/√key_dim if None.
        dropout: the share of the weights that was dropped.
        sinks: a score for each head that takes its share of every row, [heads].
        weights: what the kernel returned as its weights, [batch, heads, queries, keys].
    """

    kernel: str
    query: Float[Tensor, "batch heads queries key_dim"]
    key: Float[Tensor, "batch key_heads keys key_dim"]
    value: Float[Tensor, "batch key_heads keys value_dim"]
    output: Float[Tensor, "batch heads queries value_dim"]
    returned: Tensor
    mask: Tensor | None = None
    pattern: Pattern | None = None
    first_query: int | Tensor | None = None
    bias: Bias | None = None
    added: Tensor | None = None
    scale: float | None = None
    dropout: float = 0.0
    sinks: Float[Tensor, "heads"] | None = None
    weights: Tensor | None = None


@runtime_checkable
class CallListener(Protocol):
    """Who is told of calls.

    Attributes:
        cross: whether what is running looks at another sequence, if somebody knows.
    """

    cross: bool | None

    @property
    def is_active(self) -> bool:
        """Whether it wants to be told now."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Look away while something runs that is caught as a whole."""
        ...

    def catch(self, kernel: str, module: nn.Module | None, read: Callable[[], RawCall]) -> None:
        """Take a call down.

        Args:
            kernel: what computed it.
            module: what made it; the one that is running, if that isn't known.
            read: says what it was.
        """
        ...

    @property
    def running(self) -> Sequence[Frame]:
        """The modules that are running, the innermost last."""
        ...

    def catch_product(self, product: Product, num_heads: int | None) -> None:
        """Take down weights that the running module has made by itself, and multiplied.

        Args:
            product: the weights, what they were multiplied with, and what came out.
            num_heads: how many heads there are, if that is known.
        """
        ...

    def catch_lost(self, frame: Frame, reason: str) -> None:
        """Take down that a module may have computed attention that can't be looked into."""
        ...
