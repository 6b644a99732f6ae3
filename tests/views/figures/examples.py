"""Matrices and tokens that figures are tried on."""

import torch
from torch import Tensor

from regard import AttentionMatrix, causal
from regard.calls.call import AttentionCall, Kind
from regard.patterns import Pattern

STRANGE = ["$x$", "<script>", "日本", "🙂", "\ud800", "", "\n", "a_b^c{", "שלום", "x" * 40]
"""Tokens that a careless figure stumbles over."""


def call_of(
    matrix: AttentionMatrix, module: str = "layers.5.self_attn", kind: Kind = "self"
) -> AttentionCall:
    """Return a call as `regard.watch` has it, as far as figures care."""
    return AttentionCall.of(matrix, module, kind, index=5)


def matrix(
    tokens: int, *, heads: int = 3, pattern: Pattern | None = None, keys: int | None = None
) -> AttentionMatrix:
    """Return a matrix that looks far from evenly, the same each time."""
    chance = torch.Generator().manual_seed(tokens)
    query = torch.randn(1, heads, tokens, 5, generator=chance, dtype=torch.float64)
    key = torch.randn(1, heads, keys or tokens, 5, generator=chance, dtype=torch.float64)
    return AttentionMatrix(2 * query, key, pattern=pattern)


def causal_matrix(tokens: int, *, heads: int = 3) -> AttentionMatrix:
    return matrix(tokens, heads=heads, pattern=causal())


def words(count: int) -> list[str]:
    """Return tokens that differ, a few letters each."""
    return [f"w{number}" for number in range(count)]


def dense(given: AttentionMatrix) -> Tensor:
    """Return the weights of the only sequence, [heads, queries, keys]."""
    return given.dense()[0]
