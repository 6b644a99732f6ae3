"""Attention as `nn.Module`s.

- `SelfAttention`: one head, as in the textbook formula.
- `MultiHeadAttention`: self- or cross-attention, with grouped queries and a `KeyValueCache`.
- `RecurrentSelfAttention`: attention inside a recurrent network.
- `TransformerBlock` and `FeedForward`: the parts of a transformer.
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
