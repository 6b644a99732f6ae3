"""Read keys and values from the paged cache of a layer, in any order of its backend.

vLLM keeps keys and values in blocks of `block_size` tokens. The blocks of a request lie anywhere in
the cache of a layer; its block table lists them in order. A token at position p has the slot
p mod block_size of block table[p // block_size]. With blocks of 4 tokens:

    block table    5, 2, 7                     the request has 10 tokens
    cache          block 2     block 5     block 7
                   4 5 6 7     0 1 2 3     8 9 · ·     each slot: key and value of a position

So reading tokens start … stop − 1 takes the blocks start // block_size … (stop − 1) // block_size.

The order of numbers *inside* a block is the business of each backend, and changes between versions
of vLLM. In 0.32, for example:

    FLASH_ATTN, FLASHINFER    [head, slot, key ‖ value]
    CPU_ATTN                  of each head, the key channel by channel (all slots of channel 0, of
                              channel 1, …), then the value slot by slot

None of this is written into the reader. It asks the backend, once for each layer that needs it:

1. Number all elements of a block: 1 … 2 · block_size · key_heads · key_dim.
2. Have `do_kv_cache_update` write these numbers, as the keys and values of block_size tokens, to
   block 1 of a scratch cache of two blocks. Numbers are written digit by digit, in base 128: digits
   are exact in every dtype of a cache (bfloat16: up to 256), so 3 writes serve for 2 million.
3. The element of the block that holds number i is the place of key or value i. To read is to index
   each block by all places.

It is exact, because it refuses what is no such permutation. A block must hold every number once, so
padding, rounding (quantised caches) and other sizes are errors. Block 0 must stay empty, so that
slots are counted as above. Caches whose first axis is not that of blocks, such as [2, blocks, …] of
ROCM_ATTN, are refused before a write, which could leave the scratch cache. (Layers that round keys
by their dtype, share them or have no separate update are refused in `layer`.)

Cost: two blocks of memory and an index per element of a block; to read, one gather of the blocks.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

_BASE = 128
"""Numbers below this are exact in every dtype of a cache."""


class CacheReader:
    """Reads keys and values of a layer from the blocks of its cache.

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
        written = _written(layer, numbers.view(2, *shape))

        # The place of each number; elements that were not written hold 0.
        places = torch.full((len(numbers) + 1,), -1, device=written.device)
        places[written] = torch.arange(len(written), device=written.device)
        if int((written > 0).sum()) != len(numbers) or bool((places[1:] < 0).any()):
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
            blocks: the block table of the request.
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
    """Return the elements of a block after a backend wrote numbers there, as keys and values.

    Zeros, which no reader accepts, if it writes to another block, or may.
    """
    cache: Tensor = layer.kv_cache
    if cache[0].numel() != numbers.numel():
        # The first axis is not that of blocks: the backend might write past the scratch cache.
        return torch.zeros(1, dtype=torch.int64, device=cache.device)

    block_size = numbers.shape[1]
    slots = torch.arange(block_size, 2 * block_size, device=cache.device)
    written = torch.zeros(cache[0].numel(), dtype=torch.int64, device=cache.device)
    for power in range(math.ceil(math.log(numbers.numel() + 1, _BASE))):
        scratch = cache[:2].clone().zero_()
        digits = (numbers // _BASE**power % _BASE).to(cache.dtype)
        layer.impl.do_kv_cache_update(layer, digits[0], digits[1], scratch, slots)
        if bool(scratch[0].any()):
            return torch.zeros_like(written)
        written += scratch[1].flatten().long() * _BASE**power
    return written
