"""The exercise of docs/learn/position.md."""

# --8<-- [start:solution]
import torch

import regard
from regard.layers import MultiHeadAttention
from regard.positions import Rotary


def test_a_causal_layer_without_positions_knows_a_little_of_order() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 6, 16)
    order = torch.tensor([3, 0, 4, 1, 2, 5])  # the last token stays where it is
    mixed = x[:, order]

    bare = MultiHeadAttention(16, 2, pattern=regard.causal())
    # The last token sees all of the others, as a set: their order is nothing to it.
    torch.testing.assert_close(bare(mixed)[:, -1], bare(x)[:, -1])
    # But the tokens before it see other sets now. They are not just permuted.
    assert not torch.allclose(bare(mixed), bare(x)[:, order], atol=1e-3)

    # With positions, the last token notices too.
    turned = MultiHeadAttention(16, 2, pattern=regard.causal(), rotary=Rotary(8))
    assert not torch.allclose(turned(mixed)[:, -1], turned(x)[:, -1], atol=1e-3)


# --8<-- [end:solution]
