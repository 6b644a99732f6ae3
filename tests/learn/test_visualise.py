"""The exercise of docs/learn/visualise.md."""

# --8<-- [start:solution]
import torch
from torch import Tensor


def contributions(weights: Tensor, values: Tensor) -> Tensor:
    """Return how much each key adds to an output: the length of weight × value, as a share."""
    lengths = weights * values.norm(dim=-1)
    return lengths / lengths.sum(dim=-1, keepdim=True)


def test_what_is_looked_at_most_may_add_least() -> None:
    weights = torch.tensor([0.90, 0.06, 0.04])
    values = torch.tensor([[0.01, 0.00], [3.00, 4.00], [0.00, 1.00]])

    added = contributions(weights, values)
    torch.testing.assert_close(added.sum(), torch.tensor(1.0))
    assert weights.argmax() == 0
    assert added.argmin() == 0
    assert added[0] < 0.03

    # Without the token that gets 90 % of the attention, the output is nearly the same.
    output = weights @ values
    rest = weights[1:] @ values[1:]
    assert (output - rest).norm() < 0.03 * output.norm()


# --8<-- [end:solution]
