"""The choice of a backend, by estimated cost.

Costs are nanoseconds of one thread on the CPU, measured on one machine. Only their ratios matter;
`python -m benchmarks.masks` compares the resulting choices with measured times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention import block_sparse, flex, fused, reference
from regard.attention.call import Attention, autocasts
from regard.attention.decode import cache_step
from regard.errors import check_choice
from regard.patterns import Layout
from regard.patterns.dense_keys import MAX_DENSE_QUERIES
from regard.patterns.from_mask import FromMask
from regard.patterns.layout import WRITTEN_PAIRS
from regard.patterns.layout_cache import cached, compares_by_value
from regard.patterns.neighbours import Neighbours
from regard.patterns.pattern import Everyone
from regard.patterns.regular import Causal

LARGEST_MASK = 1 << 26
"""Largest number of entries of a dense mask for the fused kernel."""

SHORT, SPARSE = 320, 0.6
"""On a GPU, blocks are skipped above this number of keys and up to this density."""

STRIP_COST = 0.8e6
"""A strip: prepare rows and mask, call one kernel, join its result."""

PAIR_COST, FEATURE_COST = 1.4, 0.02
"""A pair of one head, and each feature of its query, key and value."""

GATHERED_COST = 2.2
"""A gathered feature of a key or value."""

MASKED_COST, TESTED_COST = 1.5, 15.0
"""A pair whose mask is a tensor, and a pair whose mask the pattern computes."""

BIASED_COST = 6.0
"""A pair of one head with a bias."""

LAYOUT_COST, READ_COST = 4e6, 8.0
"""A layout, and each pair of a mask or graph that it reads."""


class Backend(NamedTuple):
    """An implementation of attention."""

    obstacle: Callable[[Attention, bool], str | None]
    run: Callable[[Attention, bool], tuple[Tensor, Tensor | None]]


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


def run(inputs: Attention, lse: bool, backend: str) -> tuple[Tensor, Tensor | None]:
    """Run a call on the backend that is planned for it."""
    # No backend computes them: only the matrix of a call has sinks.
    assert inputs.sinks is None
    name, _ = _served_by(inputs, lse, backend)
    num_features = inputs.query.shape[3] + inputs.value_dim
    if 0 in (inputs.num_queries, inputs.num_keys, num_features):
        # There is nothing to compute, and kernels have no such sizes.
        name = "reference"
    if backend == "auto" and name == "fused" and not lse and not torch.compiler.is_compiling():
        cache_step(inputs)
    if autocasts(inputs.query.device):
        # The tensors are cast already; intermediate results must keep their dtype.
        with torch.autocast(inputs.query.device.type, enabled=False):
            return BACKENDS[name].run(inputs, lse)
    return BACKENDS[name].run(inputs, lse)


def planned(inputs: Attention, lse: bool, backend: str) -> Plan:
    """Return the backend of a call and its cost."""
    name, reason = _served_by(inputs, lse, backend)
    if name in ("blocks", "flex"):
        density = _density(inputs)
    else:
        density = fused.density(inputs, lse) if name == "fused" else 1.0
    pairs = inputs.batch * inputs.num_heads * inputs.num_queries * inputs.num_keys
    return Plan(name, reason, density, 2.0 * _num_features(inputs) * pairs * density)


def _served_by(inputs: Attention, lse: bool, backend: str) -> tuple[str, str]:
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


def _choose(inputs: Attention, lse: bool) -> tuple[str, str]:
    """Return the name of the fastest backend, and the reason."""
    # 1. Calls that only one backend supports.
    if not inputs.num_queries * inputs.num_keys:
        return "reference", "there are no query–key pairs"
    if inputs.dropout:
        return "fused", "it is the only fused kernel with dropout"
    if inputs.bias is not None and not inputs.bias.additive:
        if _serves_on_gpu(inputs, lse):
            return "flex", "the bias is not additive"
        return "blocks", "the bias is not additive, so scores are materialised"

    # 2. Calls of which the fused kernel computes all pairs, with a mask if need be.
    takes_mask = not fused.obstacle(inputs, lse) and not inputs.trains_bias
    # Without a mask tensor, torch.compile can trace the call, and there is nothing to estimate.
    needs_mask = inputs.bias is not None or not isinstance(inputs.pattern, Everyone | Causal)
    if takes_mask and needs_mask and _cost_of_all_pairs(inputs) <= STRIP_COST:
        return "fused", "there are few pairs, and computing all of them is fastest"
    if fused.kernel_masks(inputs):
        return "fused", "the kernel has a causal mask"
    if inputs.bias is None and inputs.is_dense:
        return "fused", "every query may attend to every key"
    takes_mask = takes_mask and _mask_size(inputs) <= LARGEST_MASK
    if takes_mask and not _blocks_pay(inputs):
        return "fused", "the pattern leaves too few blocks empty for skipping them to pay"

    # 3. All others, by blocks.
    name = "flex" if _serves_on_gpu(inputs, lse) else "blocks"
    if takes_mask:
        return name, "the pattern leaves many blocks empty, which it skips"
    return name, "it needs no mask as large as the matrix"


def _serves_on_gpu(inputs: Attention, lse: bool) -> bool:
    return inputs.query.device.type == "cuda" and flex.obstacle(inputs, lse) is None


def _mask_size(inputs: Attention) -> int:
    heads = inputs.bias.num_heads if inputs.bias is not None else None
    sequences = inputs.bias.batch_size if inputs.bias is not None else None
    sequences = sequences or inputs.simple_pattern.batch_size
    return inputs.num_queries * inputs.num_keys * (heads or 1) * (sequences or 1)


def _density(inputs: Attention) -> float:
    pairs = inputs.num_queries * inputs.num_keys * (inputs.simple_pattern.batch_size or 1)
    return block_sparse.layout_for(inputs, backward=False).num_pairs / max(pairs, 1)


def _blocks_pay(inputs: Attention) -> bool:
    """Return whether computing only the allowed blocks is faster than computing all pairs."""
    if inputs.query.device.type != "cpu":
        return inputs.num_keys > SHORT and _density(inputs) <= SPARSE
    if inputs.first_position is None or inputs.bias is not None:
        return _blocks_cost_less(inputs)
    shapes = (tensor.shape for tensor in inputs.tensors)
    name = ("pays", inputs.first_position, *shapes, torch.get_num_threads())
    return cached(inputs.pattern, name, lambda: _blocks_cost_less(inputs))


def _blocks_cost_less(inputs: Attention) -> bool:
    all_pairs = _cost_of_all_pairs(inputs)
    if _least_cost_of_blocks(inputs) > all_pairs:
        return False
    return _cost_of_blocks(inputs, block_sparse.layout_for(inputs, backward=False)) < all_pairs


def _cost_of_all_pairs(inputs: Attention) -> float:
    """Return the cost of all pairs under a dense mask."""
    pairs = inputs.num_queries * inputs.num_keys
    sequences = 0 if isinstance(inputs.pattern, Everyone) else inputs.pattern.batch_size or 1
    per_pair = inputs.batch * _cost_per_pair(inputs) + sequences * MASKED_COST
    return pairs * per_pair / torch.get_num_threads()


def _least_cost_of_blocks(inputs: Attention) -> float:
    """Return a lower bound of `_cost_of_blocks` that needs no layout.

    It may exceed the cost of all pairs: for a graph with many edges, whose keys are gathered, or
    for a mask that changes in every step.
    """
    cost = _cost_of_layout(inputs)
    for leaf in inputs.pattern.leaves():
        if isinstance(leaf, Neighbours):
            rows = len(leaf.edges) * inputs.batch * inputs.key.shape[1]
            cost += rows * _num_features(inputs) * GATHERED_COST / torch.get_num_threads()
    if isinstance(inputs.pattern, FromMask):
        cost += inputs.pattern.share_of_blocks * _cost_of_all_pairs(inputs)
    return cost


def _cost_of_blocks(inputs: Attention, layout: Layout) -> float:
    """Return the cost of the strips of a layout."""
    computed, overhead = 0.0, _cost_of_layout(inputs)
    for strip in layout.unwritten:
        sequences = inputs.batch if strip.batch is None else 1
        per_pair = _cost_per_pair(inputs)
        if strip.pattern is not None:
            per_pair += MASKED_COST if strip.num_pairs <= WRITTEN_PAIRS else TESTED_COST
        elif strip.mask is not None:
            per_pair += MASKED_COST / strip.num_rectangles
        computed += sequences * strip.num_pairs * per_pair

        if strip.keys.pitch is None:
            rows = strip.num_rectangles * strip.keys.count * inputs.key.shape[1]
            computed += sequences * rows * _num_features(inputs) * GATHERED_COST
        overhead += sequences * STRIP_COST
    return computed / torch.get_num_threads() + overhead


def _cost_of_layout(inputs: Attention) -> float:
    """Return the cost of a layout; 0 for patterns whose layout is cached."""
    leaves = list(inputs.pattern.leaves())
    if inputs.num_queries <= MAX_DENSE_QUERIES:
        # Generation: the next step has one key more, so the layout is not reused.
        return LAYOUT_COST
    if inputs.first_position is not None and all(map(compares_by_value, leaves)):
        return 0.0
    pairs = sum(leaf.mask.numel() for leaf in leaves if isinstance(leaf, FromMask))
    return LAYOUT_COST + READ_COST * pairs


def _cost_per_pair(inputs: Attention) -> float:
    """Return the cost of a query–key pair in all heads of one sequence."""
    cost = inputs.num_heads * (PAIR_COST + FEATURE_COST * _num_features(inputs))
    if inputs.bias is not None:
        # Sequences and heads that share a bias share its cost.
        sequences = (inputs.bias.batch_size or 1) / inputs.batch
        cost += (inputs.bias.num_heads or 1) * sequences * BIASED_COST
    return cost


def _num_features(inputs: Attention) -> int:
    """Return the number of features of a key with its value."""
    return inputs.key.shape[-1] + inputs.value_dim


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "All" if share == 1 else "Nearly all"


def _count(number: float) -> str:
    for unit in ("", " thousand", " million", " billion", " trillion"):
        if float(f"{number:.3g}") < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:,.0f} quadrillion"
