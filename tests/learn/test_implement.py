"""The exercise of docs/learn/implement.md."""

# --8<-- [start:solution]
import torch

import regard


def test_two_halves_of_the_keys_joined_are_the_whole() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 50, 16, dtype=torch.float64)
    whole, lse = regard.attend_with_lse(query, key, value)

    halves = slice(0, 20), slice(20, 50)
    parts = [regard.attend_with_lse(query, key[:, :, half], value[:, :, half]) for half in halves]
    outputs, sums = (torch.stack(part) for part in zip(*parts, strict=True))

    # The sum of all exponentials is the sum of both sums.
    joined = sums.logsumexp(dim=0)
    torch.testing.assert_close(joined, lse)
    # What a half has to say counts by its share of that sum.
    shares = torch.exp(sums - joined)
    torch.testing.assert_close((shares[..., None] * outputs).sum(dim=0), whole)


# --8<-- [end:solution]
