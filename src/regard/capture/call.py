"""Captured calls of attention, before their interpretation."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.capture.module_stack import Frame
from regard.capture.product import Product
from regard.capture.reading import Reading, read_axes
from regard.patterns import Pattern
from regard.positions import Bias


class UnreadableError(ValueError):
    """The output of a call can't be replaced exactly."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelCall:
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
        replaced: another output for the model, if any.
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
    replaced: Float[Tensor, "batch heads queries value_dim"] | None = None

    @property
    def returned(self) -> Float[Tensor, "batch heads queries value_dim"]:
        """The output for the model."""
        return self.output if self.replaced is None else self.replaced

    def with_output(self, output: Float[Tensor, "batch heads queries value_dim"]) -> "KernelCall":
        """Return the call with another output for the model."""
        return replace(self, replaced=output)


@dataclass(frozen=True, eq=False)
class WrittenCall:
    """Attention that a model computes itself, seen at the product of weights and values.

    The output of each head is somewhere in the result of that product, in any layout. Where, is
    found by reading the axes once more from a result that holds its own flat indices:

        result [tokens, batch · heads · dim]   ──read_axes──►  output [batch, heads, tokens, dim]
        0, 1, 2, 3, …                          ──read_axes──►  index of each number of the output

    Attributes:
        product: the product; its `result` is what the model gets.
        axes: its weights, values and output with named axes.
        running: the modules that ran, the innermost last.
        num_heads: the number of heads, if known.
    """

    product: Product
    axes: Reading
    running: Sequence[Frame]
    num_heads: int | None

    @property
    def output(self) -> Float[Tensor, "batch heads queries value_dim"]:
        """The output that was computed."""
        return self.axes.output

    @property
    def returned(self) -> Float[Tensor, "batch heads queries value_dim"]:
        """The output for the model."""
        return self._result.reshape(-1)[self._indices]

    def with_output(self, output: Float[Tensor, "batch heads queries value_dim"]) -> "WrittenCall":
        """Return the call with another output for the model.

        Raises:
            UnreadableError: the function that computes the output adds something else to it.
        """
        flat = self._result.reshape(-1).index_copy(0, self._indices.reshape(-1), output.reshape(-1))
        product = replace(self.product, result=flat.view(self._result.shape))
        return replace(self, product=product)

    @property
    def _result(self) -> Tensor:
        assert self.product.result is not None
        return self.product.result

    @cached_property
    def _indices(self) -> Int[Tensor, "batch heads queries value_dim"]:
        """The flat index of each number of the output in the result."""
        assert self.product.read is not None
        result = self._result
        indices = torch.arange(result.numel(), dtype=torch.float64, device=result.device)
        numbered = self.product.read(indices.view(result.shape), None)
        assert numbered is not None
        numbered = replace(self.product, output=numbered.output)
        output = read_axes(numbered, self.running, self.num_heads).output
        if not torch.equal(output.flatten().sort().values, indices):
            raise UnreadableError(
                "something is added to its output by the function that computes it"
            )
        return output.long()


Call = KernelCall | WrittenCall
"""A call of attention, by a kernel or written down."""


class Receiver(Protocol):
    """What receives the calls that a thread makes, from patched functions; see `Capture`."""

    @property
    def wants_lse(self) -> bool:
        """Whether the log-sum-exp of kernels that don't return it is needed."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Pause inside a call that is captured as a whole."""
        ...

    def on_call(
        self, kernel: str, module: nn.Module | None, read: Callable[[], KernelCall]
    ) -> KernelCall | None:
        """Receive a call.

        Args:
            kernel: the name of the kernel.
            module: its module; by default the running one.
            read: returns the call.

        Returns:
            The changed call, or None.
        """
        ...
