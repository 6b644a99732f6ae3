"""Capture calls of FlexAttention; its mask_mod and score_mod as patterns and biases."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from regard.capture.call import KernelCall
from regard.capture.patch import Patch
from regard.capture.traced import Traced
from regard.internals import skip_compile
from regard.patterns import Cover, Pattern
from regard.patterns.from_mask import FromMask
from regard.patterns.pattern import Bools, Covers, Ints, Span
from regard.positions.bias import compose

Modifier = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class BlockPattern(Pattern):
    """The pattern of a BlockMask that is the same for all heads.

    Attributes:
        blocks: the mask.
        first_query: the position of query 0 of the mask.
    """

    blocks: BlockMask
    first_query: int
    _rule: Traced = field(init=False, repr=False)
    _some: FromMask = field(init=False, repr=False)
    _full: FromMask = field(init=False, repr=False)

    def __post_init__(self) -> None:
        blocks = self.blocks
        object.__setattr__(self, "_rule", Traced(blocks.mask_mod, blocks.kv_indices.device))
        partly = _grid(blocks.kv_num_blocks, blocks.kv_indices)
        full = torch.zeros_like(partly)
        if blocks.full_kv_num_blocks is not None and blocks.full_kv_indices is not None:
            full = _grid(blocks.full_kv_num_blocks, blocks.full_kv_indices)
        batched = self.batch_size is not None
        object.__setattr__(self, "_some", FromMask(partly | full, batched))
        object.__setattr__(self, "_full", FromMask(full, batched))

    @property
    def batch_size(self) -> int | None:
        batch = self.blocks.shape[0]
        return None if batch == 1 else batch

    @property
    def num_positions(self) -> int:
        # A mask_mod may index tensors, and is not defined for others.
        return self.blocks.shape[-1]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self._rule.tensors

    def keep(self, keep_tensor: Callable[[Tensor], Tensor]) -> None:
        """Read other tensors from now on; see `Traced.keep`."""
        self._rule.keep(keep_tensor)

    def test(self, batch: Ints, query: Ints, key: Ints) -> Bools:
        if self.batch_size is None:
            batch = torch.zeros_like(batch)
        head = torch.zeros_like(batch)
        shape = torch.broadcast_shapes(batch.shape, query.shape, key.shape)
        row = query - self.first_query
        found = torch.as_tensor(self._rule(batch, head, row, key), device=key.device)
        # Unlisted blocks are masked; full blocks skip mask_mod.
        height, width = self.blocks.BLOCK_SIZE
        place = (batch, row // height, key // width)
        some, full = (x.mask.to(key.device)[place] for x in (self._some, self._full))
        return (some & (full | found)).expand(shape)

    def cover_spans(self, batch: Ints, query: Span, key: Span) -> Covers:
        height, width = self.blocks.BLOCK_SIZE
        # `from_mask` aligns the last query with the last key.
        behind = self._some.mask.shape[2] - self._some.mask.shape[1]
        rows = Span(*((x - self.first_query) // height + behind for x in query))
        columns = Span(*(x // width for x in key))
        some = self._some.cover_spans(batch, rows, columns)
        full = self._full.cover_spans(batch, rows, columns)
        code = torch.where(some == Cover.NONE, Cover.NONE, Cover.SOME).to(torch.int8)
        return code.masked_fill(full == Cover.ALL, Cover.ALL)

    def __repr__(self) -> str:
        return f"block_mask({self._rule.name})"


@dataclass(frozen=True, eq=False)
class Modified:
    """A bias from a score_mod, and from a mask_mod that differs between heads; see `Bias`.

    Attributes:
        score: the score_mod, or None.
        mask: the mask_mod, or None.
        first_query: the position of their query 0.
    """

    score: Traced | None
    mask: Traced | None
    first_query: int

    additive = False
    relative = False
    batch_size = None
    num_heads = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the two functions read."""
        return tuple(tensor for rule in self._rules for tensor in rule.tensors)

    @property
    def _rules(self) -> list[Traced]:
        return [rule for rule in (self.score, self.mask) if rule is not None]

    def keep(self, keep_tensor: Callable[[Tensor], Tensor]) -> None:
        """Read other tensors from now on; see `Traced.keep`."""
        for rule in self._rules:
            rule.keep(keep_tensor)

    def adjust(
        self,
        scores: Float[Tensor, "*#pairs"],
        batch: Int[Tensor, "*#pairs"],
        head: Int[Tensor, "*#pairs"],
        query: Int[Tensor, "*#pairs"],
        key: Int[Tensor, "*#pairs"],
    ) -> Float[Tensor, "..."]:
        """Return the adjusted scores; see `Bias.adjust`."""
        query = query - self.first_query
        adjusted = scores
        if self.score is not None:
            adjusted = self.score(scores, batch, head, query, key).to(scores.dtype)
        if self.mask is not None:
            adjusted = torch.where(self.mask(batch, head, query, key), adjusted, -torch.inf)
        shape = torch.broadcast_shapes(*(x.shape for x in (scores, batch, head, query, key)))
        if adjusted.shape != shape:
            raise ValueError("score_mod and mask_mod must work with vmap")
        return adjusted


def meaning(blocks: BlockMask, first_query: int) -> tuple[Pattern | None, Modified | None]:
    """Return a BlockMask as a pattern or, if heads differ, as a bias."""
    if blocks.shape[1] > 1:
        rule = Traced(blocks.mask_mod, blocks.kv_indices.device)
        return None, Modified(None, rule, first_query)
    return BlockPattern(blocks, first_query), None


def _grid(counts: Tensor, indices: Tensor) -> Bool[Tensor, "batch row_blocks key_blocks"]:
    """Return the listed blocks of a mask that is the same for all heads."""
    listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    grid = torch.zeros_like(indices, dtype=torch.bool)
    # Unlisted entries have False, which amax overwrites.
    grid.scatter_reduce_(-1, indices.long(), listed, "amax", include_self=True)
    return grid[:, 0].cpu()


def _read(
    output: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Modifier | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    **others: Any,
) -> KernelCall:
    """Convert the arguments of flex_attention to a `KernelCall`."""
    first_query = key.shape[2] - query.shape[2]
    # With a mask, all sequences may share keys.
    key, value = (x.expand(len(query), -1, -1, -1) for x in (key, value))
    pattern, by_head = (None, None) if block_mask is None else meaning(block_mask, first_query)
    changed = None
    if score_mod is not None:
        kind = torch.promote_types(query.dtype, torch.float32)
        changed = Modified(Traced(score_mod, query.device, kind), None, first_query)
    output = output[0] if isinstance(output, tuple) else output
    return KernelCall(
        kernel="flex_attention",
        query=query,
        key=key,
        value=value,
        output=output,
        original=output,
        pattern=pattern,
        first_query=first_query,
        bias=compose(changed, by_head),
        scale=scale,
    )


original = FunctionType(
    flex_attention.__code__, flex_attention.__globals__, argdefs=flex_attention.__defaults__
)
original.__kwdefaults__ = flex_attention.__kwdefaults__
"""flex_attention with its original code."""


def _begin() -> Callable[[], None]:
    """Replace the code of flex_attention, because users have imported the function itself.

    It may be compiled: torch.compile skips the new code, still compiles the original that it calls,
    and does not compile the listeners.
    """
    wrapped = inspect.unwrap(_wrapped)
    skip_compile(wrapped)
    flex_attention.__code__ = wrapped.__code__
    return partial(setattr, flex_attention, "__code__", original.__code__)


def _wrapped(*args: Any, **options: Any) -> Any:
    """Call the original and tell the receiver; runs with the globals of flex_attention."""
    from regard.capture import flex

    paused = flex.pause()  # pyright: ignore[reportCallIssue]
    try:
        output = flex.original(*args, **options)
    finally:
        flex.resume(paused)
    return flex.on_call(output, args, options)  # pyright: ignore[reportCallIssue]


@torch.compiler.disable
def pause() -> ExitStack:
    """Pause the receiver of this thread; return the stack that resumes it."""
    with ExitStack() as paused:
        receiver = PATCH.receiver()
        if receiver is not None:
            paused.enter_context(receiver.paused())
        return paused.pop_all()


@torch.compiler.disable
def resume(paused: ExitStack) -> None:
    """Resume the receiver."""
    paused.close()


@torch.compiler.disable
def on_call(output: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Tell the receiver of a call; return the output for the model."""
    receiver = PATCH.receiver()
    if receiver is None:
        return output
    changed = receiver.on_call("flex_attention", None, partial(_read, output, *args, **options))
    if changed is None:
        return output
    if not isinstance(output, tuple):
        return changed.returned
    if changed.output is not output[0]:
        raise ValueError("can't alter flex_attention with return_lse")
    return (changed.returned, *output[1:])


PATCH = Patch(_begin)
