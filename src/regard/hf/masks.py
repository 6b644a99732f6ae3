"""Masks of transformers as patterns.

transformers describes a mask by a function of two positions, composed of a few functions of its
own. Those are recognised here: the mask becomes a `PatternMask`, which passes through the model
like a tensor and reaches `attention` as a pattern. An unknown function, such as a user's, becomes
the dense mask that transformers' own kernels get.
"""

import inspect
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Any

import torch
from torch import Tensor

from regard.hf.boolean_mask import BooleanMask, PatternMask
from regard.internals import uncompiled
from regard.patterns import Pattern, causal, documents, everyone, padding, window

MaskFunction = Callable[[Any, Any, Any, Any], Any]


@uncompiled
def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction | None = None,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **others: Any,
) -> Tensor:
    """Make the mask of a call, with the signature of transformers' mask functions.

    Args:
        batch_size: number of sequences.
        q_length: number of queries.
        kv_length: number of keys.
        q_offset: position of the first query.
        kv_offset: position of the first key; not 0 if old keys were dropped.
        mask_function: whether a pair of positions is allowed; causal by default.
        attention_mask: False for padding, [batch, positions].
        device: device of the mask.
        others: arguments for transformers' own functions.

    Returns:
        A `PatternMask`; a dense `BooleanMask` [batch, 1, queries, keys] if no pattern is known.
    """
    from transformers import masking_utils

    q_offset = int(q_offset)
    first_query = q_offset - kv_offset
    function = mask_function or masking_utils.causal_mask_function
    # Documents are indexed by absolute position, so no key may have been dropped.
    pattern = _recognised(function, kv_length, shifted=bool(kv_offset) or bool(first_query))
    if pattern is not None and attention_mask is not None:
        pattern = _without_padding(pattern, attention_mask, kv_offset, kv_length)
    if pattern is not None:
        return PatternMask.from_pattern(
            pattern,
            (batch_size, 1, q_length, kv_length),
            first_query=first_query,
            first_key=kv_offset,
            device=device,
        )
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    written = masking_utils.sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=function,
        attention_mask=attention_mask,
        device=device,
        **(others | skips),
    )
    assert written is not None
    return BooleanMask.of(written)


def _recognised(function: MaskFunction, num_keys: int, *, shifted: bool) -> Pattern | None:
    """Return the pattern that a mask function of transformers describes, or None if unknown."""
    if getattr(function, "__module__", None) != "transformers.masking_utils":
        return None
    # A closure is named after the function that made it, and holds its arguments.
    maker = function.__qualname__.split(".")[0]
    held = inspect.getclosurevars(function).nonlocals
    if maker in ("and_masks", "or_masks"):
        parts = [_recognised(part, num_keys, shifted=shifted) for part in held["mask_functions"]]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return reduce(and_ if maker == "and_masks" else or_, known)
    if maker == "packed_sequence_mask_function" and not shifted:
        return documents(held["packed_sequence_mask"])
    if held.get("sliding_window", 1) < 1:
        # Configurations say so of layers without a window.
        return None
    simple = _SIMPLE.get(maker)
    return simple(held, num_keys) if simple else None


# A window without a limit ahead ends after the last key.
_SIMPLE: dict[str, Callable[[Any, int], Pattern]] = {
    "causal_mask_function": lambda held, num_keys: causal(),
    "bidirectional_mask_function": lambda held, num_keys: everyone(),
    "sliding_window_overlay": lambda held, num_keys: window(
        before=held["sliding_window"] - 1, after=num_keys
    ),
    "sliding_window_bidirectional_overlay": lambda held, num_keys: window(
        before=held["sliding_window"], after=held["sliding_window"]
    ),
}


def _without_padding(
    pattern: Pattern, real: Tensor, first_key: int, num_keys: int
) -> Pattern | None:
    """Return the pattern without the padding, or None if the real tokens are not contiguous."""
    real = real[:, first_key : first_key + num_keys].bool().cpu()
    if bool(real.all()) and real.shape[1] == num_keys:
        return pattern
    if not real.shape[1]:
        return None
    lengths = real.sum(dim=1)
    starts = real.int().argmax(dim=1)
    steps = real.int().diff(dim=1).abs().sum(dim=1)
    # One contiguous piece starts at most once and ends at most once.
    in_one_piece = steps <= (starts > 0).int() + 1
    if not bool(in_one_piece.all()):
        return None
    return pattern & padding(lengths, starts=starts)
