"""Read keys and values from the cache of a layer, in whatever order its backend packs them."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

_BASE = 128
"""Numbers below this are exact in every dtype of a cache."""


class CacheReader:
    """Reads keys and values of a layer from the blocks of its cache.

    Each backend packs a block in its own order. To find the order, the backend writes distinct
    numbers to a scratch cache of two blocks, and the reader looks where each one is: every block
    has the key or value of that token, head and channel there.

    Args:
        layer: an attention layer of vLLM.
        block_size: number of tokens in a block.

    Raises:
        ValueError: the backend does not write every number once, into its block.
    """

    def __init__(self, layer: Any, block_size: int) -> None:
        self._block_size = block_size
        shape = (block_size, layer.num_kv_heads, layer.head_size)
        numbers = torch.arange(1, 2 * math.prod(shape) + 1, device=layer.kv_cache.device)
        found = _written(layer, numbers.view(2, *shape))
        # The place of each number; 0 was not written.
        places = torch.full((len(numbers) + 1,), -1, device=found.device)
        places[found] = torch.arange(len(found), device=found.device)
        if int((found > 0).sum()) != len(numbers) or bool((places[1:] < 0).any()):
            raise ValueError(
                f"llm can't be watched: the order in which {layer.attn_backend.get_name()} keeps "
                f"the keys of {layer.layer_name} in its cache is not understood"
            )
        self._places = places[1:].view(2, *shape).transpose(0, 1).flatten(1, 2)

    def read(
        self,
        cache: Tensor,
        blocks: Int[Tensor, "blocks"],
        start: int,
        stop: int,
    ) -> Float[Tensor, "tokens two_key_heads key_dim"]:
        """Return keys and values of a request, one after the other.

        Args:
            cache: the cache of the layer.
            blocks: the blocks of the request, in order.
            start: first token.
            stop: the token after the last.
        """
        first, last = start // self._block_size, -(-stop // self._block_size)
        packed = cache[blocks[first:last].long()].flatten(1)
        pairs = packed[:, self._places].flatten(0, 1)
        offset = first * self._block_size
        return pairs[start - offset : stop - offset]


def _written(
    layer: Any, numbers: Int[Tensor, "2 block key_heads key_dim"]
) -> Int[Tensor, "block_elements"]:
    """Return the numbers of a block after a backend wrote them there, as keys and as values."""
    cache: Tensor = layer.kv_cache
    if cache[0].numel() != numbers.numel():
        # The first axis is not that of blocks: the backend might write past the scratch cache.
        return torch.zeros(1, dtype=torch.int64, device=cache.device)
    block_size = numbers.shape[1]
    slots = torch.arange(block_size, 2 * block_size, device=cache.device)
    found = torch.zeros(cache[0].numel(), dtype=torch.int64, device=cache.device)
    for power in range(math.ceil(math.log(numbers.numel() + 1, _BASE))):
        scratch = cache[:2].clone().zero_()
        digits = (numbers // _BASE**power % _BASE).to(cache.dtype)
        layer.impl.do_kv_cache_update(layer, digits[0], digits[1], scratch, slots)
        if bool(scratch[0].any()):
            return torch.zeros_like(found)
        found += scratch[1].flatten().long() * _BASE**power
    return found
