"""Attention over a sequence that several processes share, each with a part of it.

Read `shards` (which positions each rank has), `schedule` (what a rank computes, receives and
sends), `transfers` (the messages) and `run` (the forward and backward pass) in this order.
"""

from regard.attention.ring.shards import positions, shard, unshard

__all__ = ["positions", "shard", "unshard"]
