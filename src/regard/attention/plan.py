"""Which kernel runs, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention import blocks, costs, flex, fused, reference, step
from regard.attention.arguments import autocasts
from regard.attention.call import Call
from regard.errors import check_choice
from regard.patterns.causal import Causal
from regard.patterns.memory import remembered
from regard.patterns.pattern import Everyone

LARGEST_MASK = 1 << 26
"""Numbers that a dense mask for the fused kernel may have."""

SHORT, SPARSE = 320, 0.6
"""On a GPU, only the allowed blocks are computed of more keys than these, and a smaller share."""


class Backend(NamedTuple):
    """An implementation of attention."""

    obstacle: Callable[[Call, bool], str | None]
    run: Callable[[Call, bool], tuple[Tensor, Tensor | None]]


BACKENDS = {
    "reference": Backend(reference.obstacle, reference.run),
    "fused": Backend(fused.obstacle, fused.run),
    "blocks": Backend(blocks.obstacle, blocks.run),
    "flex": Backend(flex.obstacle, flex.run),
}


@dataclass(frozen=True)
class Plan:
    """Say which backend serves a call, and what that costs.

    Attributes:
        backend: the name of the backend.
        reason: why it was chosen.
        density: the share of all query–key pairs that is computed; 1 for a dense matrix.
        flops: floating-point operations of the two products in one forward pass.
    """

    backend: str
    reason: str
    density: float
    flops: float

    def __str__(self) -> str:
        return (
            f"{self.backend}: {self.reason}. {_percent(self.density)} of the pairs are computed, "
            f"{_count(self.flops)} floating-point operations."
        )


def run(call: Call, lse: bool, backend: str) -> tuple[Tensor, Tensor | None]:
    """Run a call on the backend that is planned for it."""
    name, _ = _served_by(call, lse, backend)
    if not call.num_queries or not call.num_keys:
        # Nothing is looked at, and no kernel need be asked.
        name = "reference"
    if backend == "auto" and name == "fused" and not lse and not torch.compiler.is_compiling():
        step.keep(call)
    if autocasts(call.query.device):
        # The tensors have autocast's type by now; what is computed from them keeps its own.
        with torch.autocast(call.query.device.type, enabled=False):
            return BACKENDS[name].run(call, lse)
    return BACKENDS[name].run(call, lse)


def planned(call: Call, lse: bool, backend: str) -> Plan:
    """Say which backend serves a call and what that costs; raises as `_served_by` does."""
    name, reason = _served_by(call, lse, backend)
    if name in ("blocks", "flex"):
        density = _density(call)
    else:
        density = fused.density(call, lse) if name == "fused" else 1.0
    width = call.key.shape[-1] + call.value.shape[-1]
    pairs = call.batch * call.num_heads * call.num_queries * call.num_keys
    return Plan(name, reason, density, 2.0 * width * pairs * density)


def _served_by(call: Call, lse: bool, backend: str) -> tuple[str, str]:
    """Choose the backend for a call, or check that the named one can serve it.

    Returns:
        Its name, and why it was chosen.

    Raises:
        ValueError: there is no backend of that name, or it can't serve the call. A backend that is
            named never falls back to another.
    """
    check_choice("backend", backend, ("auto", *BACKENDS))
    if backend == "auto":
        name, reason = _choose(call, lse)
    else:
        name, reason = backend, "it was asked for"
    problem = BACKENDS[name].obstacle(call, lse)
    if problem:
        advice = '; backend="reference" can, slowly' if backend == "auto" else ""
        raise ValueError(f'backend "{name}" can\'t serve this call: {problem}{advice}')
    return name, reason


def _choose(call: Call, lse: bool) -> tuple[str, str]:
    pairs = call.num_queries * call.num_keys
    if not pairs:
        return "reference", "there is nothing to look at"
    if call.dropout:
        return "fused", "it is the only fused kernel with dropout"
    if call.bias is not None and not call.bias.additive:
        if _serves_on_gpu(call, lse):
            return "flex", "the bias changes scores rather than adding to them"
        return "blocks", "the bias changes scores rather than adding to them, so they are written"
    masked = not fused.obstacle(call, lse) and not call.trains_bias
    if masked and not _is_plain(call) and costs.of_all_pairs(call) <= costs.CALL:
        return "fused", "there are so few pairs that computing all of them is the quickest"
    if call.bias is None and call.is_dense:
        return "fused", "every query may look at every key"
    if fused.kernel_masks(call):
        return "fused", "the kernel masks what lies ahead by itself"
    masked = masked and _mask_size(call) <= LARGEST_MASK
    if not masked:
        name = "flex" if _serves_on_gpu(call, lse) else "blocks"
        return name, "it needs no mask as large as the matrix"
    if _blocks_pay(call):
        name = "flex" if _serves_on_gpu(call, lse) else "blocks"
        return name, "the pattern leaves many blocks empty, which it skips"
    return "fused", "the pattern leaves too few blocks empty for skipping them to pay"


def _is_plain(call: Call) -> bool:
    """Say whether the kernel has all that it needs for a call, so that torch.compile can follow."""
    return call.bias is None and isinstance(call.pattern, Everyone | Causal)


def _blocks_pay(call: Call) -> bool:
    """Say whether computing only the blocks that a pattern allows is quicker than all pairs."""
    if call.query.device.type != "cpu":
        return call.num_keys > SHORT and _density(call) <= SPARSE
    if call.first_position is None or call.bias is not None:
        return _costs_less(call)
    shapes = (call.query.shape, call.key.shape, call.value.shape)
    name = ("pays", call.first_position, *shapes, torch.get_num_threads())
    return remembered(call.pattern, name, lambda: _costs_less(call))


def _costs_less(call: Call) -> bool:
    every = costs.of_all_pairs(call)
    if costs.of_blocks_at_least(call) > every:
        return False
    return costs.of_blocks(call, blocks.forward_layout(call)) < every


def _mask_size(call: Call) -> int:
    heads = call.bias.num_heads if call.bias is not None else None
    sequences = call.bias.batch_size if call.bias is not None else None
    sequences = sequences or call.simple_pattern.batch_size
    return call.num_queries * call.num_keys * (heads or 1) * (sequences or 1)


def _serves_on_gpu(call: Call, lse: bool) -> bool:
    return call.query.device.type == "cuda" and flex.obstacle(call, lse) is None


def _density(call: Call) -> float:
    pairs = call.num_queries * call.num_keys * (call.simple_pattern.batch_size or 1)
    return blocks.forward_layout(call).num_pairs / max(pairs, 1)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "All" if share == 1 else "Nearly all"


def _count(number: float) -> str:
    for unit in ("", " thousand", " million", " billion", " trillion"):
        if float(f"{number:.3g}") < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:,.0f} quadrillion"
