"""A call of attention: of a matrix, or a part of one."""

import pytest
import torch

import regard
from regard.calls import AttentionCall
from regard.views import explain_call


def test_queries_and_keys_of_a_part_are_refused() -> None:
    """They are those of the whole, and would contradict the weights of the part."""
    query, key = torch.randn(2, 4, 6, 4), torch.randn(2, 2, 6, 4)
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    whole, part = AttentionCall.of(matrix), AttentionCall.of(matrix[1:, 2:4])
    assert torch.equal(whole.query, query)
    assert torch.equal(whole.key, key)
    for look in (lambda: part.query, lambda: explain_call(part, list("abcdef"), 4)):
        with pytest.raises(ValueError, match="is a slice of a matrix"):
            look()
