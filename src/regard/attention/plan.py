"""The choice of a backend."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention import block_sparse, costs, flex, fused, reference
from regard.attention.decode import cache_step
from regard.attention.inputs import AttentionInputs, autocasts
from regard.errors import check_choice
from regard.patterns.causal import Causal
from regard.patterns.layout_cache import cached
from regard.patterns.pattern import Everyone

LARGEST_MASK = 1 << 26
"""Largest number of entries of a dense mask for the fused kernel."""

SHORT, SPARSE = 320, 0.6
"""On a GPU, blocks are skipped above this number of keys and up to this density."""


class Backend(NamedTuple):
    """An implementation of attention."""

    obstacle: Callable[[AttentionInputs, bool], str | None]
    run: Callable[[AttentionInputs, bool], tuple[Tensor, Tensor | None]]


BACKENDS = {
    "reference": Backend(reference.obstacle, reference.run),
    "fused": Backend(fused.obstacle, fused.run),
    "blocks": Backend(block_sparse.obstacle, block_sparse.run),
    "flex": Backend(flex.obstacle, flex.run),
}


@dataclass(frozen=True)
class RankWork:
    """The work of one rank in a forward pass over a sequence that several share.

    The backward pass sends as many rows, and as many back with their gradients.

    Attributes:
        num_pairs: computed pairs per head, in all sequences of the pattern.
        sent: how many of its rows, keys with their values, it sends to each rank.
    """

    num_pairs: int
    sent: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The backend of a call, and its cost.

    Attributes:
        backend: the name of the backend.
        reason: why it was chosen.
        density: the share of all query–key pairs that is computed; 1 for a dense matrix.
        flops: floating-point operations of the two products in one forward pass, of this rank if
            several share the sequence.
        ranks: the work of each rank that shares the sequence.
        bytes_per_row: bytes of a row that is sent.
    """

    backend: str
    reason: str
    density: float
    flops: float
    ranks: tuple[RankWork, ...] = ()
    bytes_per_row: int = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes that all ranks send in one forward pass."""
        return self.bytes_per_row * sum(sum(rank.sent) for rank in self.ranks)

    @property
    def imbalance(self) -> float:
        """The work of the busiest rank, over the mean."""
        pairs = [rank.num_pairs for rank in self.ranks]
        return max(pairs) * len(pairs) / sum(pairs) if any(pairs) else 1.0

    def __str__(self) -> str:
        text = (
            f"{self.backend}: {self.reason}. {_percent(self.density)} of the pairs are computed, "
            f"{_count(self.flops)} floating-point operations"
        )
        if not self.ranks:
            return f"{text}."
        return (
            f"{text} on this rank; the busiest has {self.imbalance:.2f} × the mean. "
            f"{_count(self.bytes_sent)} bytes are sent."
        )


def run(inputs: AttentionInputs, lse: bool, backend: str) -> tuple[Tensor, Tensor | None]:
    """Run a call on the backend that is planned for it."""
    name, _ = _served_by(inputs, lse, backend)
    if not inputs.num_queries or not inputs.num_keys:
        # There is nothing to compute.
        name = "reference"
    if backend == "auto" and name == "fused" and not lse and not torch.compiler.is_compiling():
        cache_step(inputs)
    if autocasts(inputs.query.device):
        # The tensors are cast already; intermediate results must keep their dtype.
        with torch.autocast(inputs.query.device.type, enabled=False):
            return BACKENDS[name].run(inputs, lse)
    return BACKENDS[name].run(inputs, lse)


def planned(inputs: AttentionInputs, lse: bool, backend: str) -> Plan:
    """Return the backend of a call and its cost."""
    name, reason = _served_by(inputs, lse, backend)
    if name in ("blocks", "flex"):
        density = _density(inputs)
    else:
        density = fused.density(inputs, lse) if name == "fused" else 1.0
    width = inputs.key.shape[-1] + inputs.value.shape[-1]
    pairs = inputs.batch * inputs.num_heads * inputs.num_queries * inputs.num_keys
    return Plan(name, reason, density, 2.0 * width * pairs * density)


def _served_by(inputs: AttentionInputs, lse: bool, backend: str) -> tuple[str, str]:
    """Choose a backend, or check the named one; return its name and the reason.

    Raises:
        ValueError: no backend has that name, or it doesn't support the call.
    """
    check_choice("backend", backend, ("auto", *BACKENDS))
    if backend == "auto":
        name, reason = _choose(inputs, lse)
    else:
        name, reason = backend, "it was requested"
    problem = BACKENDS[name].obstacle(inputs, lse)
    if problem:
        advice = '; backend="reference" can, slowly' if backend == "auto" else ""
        raise ValueError(f'backend "{name}" can\'t serve this call: {problem}{advice}')
    return name, reason


def _choose(inputs: AttentionInputs, lse: bool) -> tuple[str, str]:
    pairs = inputs.num_queries * inputs.num_keys
    if not pairs:
        return "reference", "there are no query–key pairs"
    if inputs.dropout:
        return "fused", "it is the only fused kernel with dropout"
    if inputs.bias is not None and not inputs.bias.additive:
        if _serves_on_gpu(inputs, lse):
            return "flex", "the bias is not additive"
        return "blocks", "the bias is not additive, so scores are materialised"
    masked = not fused.obstacle(inputs, lse) and not inputs.trains_bias
    if masked and not _is_plain(inputs) and costs.of_all_pairs(inputs) <= costs.CALL:
        return "fused", "there are few pairs, and computing all of them is fastest"
    if fused.kernel_masks(inputs):
        return "fused", "the kernel has a causal mask"
    if inputs.bias is None and inputs.is_dense:
        return "fused", "every query may attend to every key"
    masked = masked and _mask_size(inputs) <= LARGEST_MASK
    if masked and not _blocks_pay(inputs):
        return "fused", "the pattern leaves too few blocks empty for skipping them to pay"
    name = "flex" if _serves_on_gpu(inputs, lse) else "blocks"
    if masked:
        return name, "the pattern leaves many blocks empty, which it skips"
    return name, "it needs no mask as large as the matrix"


def _is_plain(inputs: AttentionInputs) -> bool:
    """Return whether the fused kernel needs no mask tensor, so that torch.compile can trace it."""
    return inputs.bias is None and isinstance(inputs.pattern, Everyone | Causal)


def _blocks_pay(inputs: AttentionInputs) -> bool:
    """Return whether computing only the allowed blocks is faster than computing all pairs."""
    if inputs.query.device.type != "cpu":
        return inputs.num_keys > SHORT and _density(inputs) <= SPARSE
    if inputs.first_position is None or inputs.bias is not None:
        return _costs_less(inputs)
    shapes = (inputs.query.shape, inputs.key.shape, inputs.value.shape)
    name = ("pays", inputs.first_position, *shapes, torch.get_num_threads())
    return cached(inputs.pattern, name, lambda: _costs_less(inputs))


def _costs_less(inputs: AttentionInputs) -> bool:
    every = costs.of_all_pairs(inputs)
    if costs.of_blocks_at_least(inputs) > every:
        return False
    return costs.of_blocks(inputs, block_sparse.forward_layout(inputs)) < every


def _mask_size(inputs: AttentionInputs) -> int:
    heads = inputs.bias.num_heads if inputs.bias is not None else None
    sequences = inputs.bias.batch_size if inputs.bias is not None else None
    sequences = sequences or inputs.simple_pattern.batch_size
    return inputs.num_queries * inputs.num_keys * (heads or 1) * (sequences or 1)


def _serves_on_gpu(inputs: AttentionInputs, lse: bool) -> bool:
    return inputs.query.device.type == "cuda" and flex.obstacle(inputs, lse) is None


def _density(inputs: AttentionInputs) -> float:
    pairs = inputs.num_queries * inputs.num_keys * (inputs.simple_pattern.batch_size or 1)
    return block_sparse.forward_layout(inputs).num_pairs / max(pairs, 1)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "All" if share == 1 else "Nearly all"


def _count(number: float) -> str:
    for unit in ("", " thousand", " million", " billion", " trillion"):
        if float(f"{number:.3g}") < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:,.0f} quadrillion"
