"""The exercise of docs/learn/multi-head.md."""

# --8<-- [start:solution]
import torch

from regard.layers import MultiHeadAttention


def test_the_output_is_a_sum_over_heads() -> None:
    torch.manual_seed(0)
    num_heads, size = 6, 8
    layer = MultiHeadAttention(model_dim=48, num_heads=num_heads).double()
    x = torch.randn(1, 10, 48, dtype=torch.float64)

    matrix = layer.matrix(x)
    total = layer.output.bias
    for head in range(num_heads):
        own = slice(head * size, (head + 1) * size)
        value = layer.value(x)[0, :, own]
        adds = matrix[0, head].dense() @ value @ layer.output.weight[:, own].T
        assert adds.norm() > 0.1
        total = total + adds

    torch.testing.assert_close(total, layer(x)[0])


# --8<-- [end:solution]
