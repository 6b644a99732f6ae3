"""Attention as modules: what models are built of.

- `SelfAttention`: one head, as it is written on paper.
- `MultiHeadAttention`: many heads, grouped or not, looking at themselves or at a context;
  `KeyValueCache` keeps what it has seen.
- `RecurrentSelfAttention`: attention inside a recurrent network.
- `TransformerBlock` and `FeedForward`: what transformers stack.
"""

from regard.layers.block import TransformerBlock
from regard.layers.cache import KeyValueCache
from regard.layers.feed_forward import FeedForward
from regard.layers.multi_head_attention import MultiHeadAttention
from regard.layers.recurrent import RecurrentOutput, RecurrentSelfAttention, RecurrentState
from regard.layers.self_attention import SelfAttention

__all__ = [
    "FeedForward",
    "KeyValueCache",
    "MultiHeadAttention",
    "RecurrentOutput",
    "RecurrentSelfAttention",
    "RecurrentState",
    "SelfAttention",
    "TransformerBlock",
]
