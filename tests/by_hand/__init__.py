"""Attention modules as people write them, and what must be told of each."""
