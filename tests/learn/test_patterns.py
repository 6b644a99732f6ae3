"""The exercise of docs/learn/patterns.md."""

# --8<-- [start:solution]
import torch

import regard


def test_a_prefix_is_read_both_ways_and_the_rest_is_written_forward() -> None:
    length, question = 8, 3
    pattern = regard.causal() | regard.prefix(question)

    # Half of the square with its diagonal, and the upper half of the small square at its corner.
    mask = pattern.allows(range(length), range(length))
    assert int(mask.sum()) == length * (length + 1) // 2 + question * (question - 1) // 2
    assert mask[0].tolist() == [True] * question + [False] * (length - question)

    torch.manual_seed(0)
    x = torch.randn(1, 1, length, 16)
    before = regard.attend(x, x, x, pattern=pattern)[0, 0]

    x[0, 0, 5] += 1.0  # a word of the answer: who notices?
    after = regard.attend(x, x, x, pattern=pattern)[0, 0]
    noticed = [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]
    assert noticed == [False] * 5 + [True] * 3

    x[0, 0, 2] += 1.0  # the last word of the question
    later = regard.attend(x, x, x, pattern=pattern)[0, 0]
    noticed = [not torch.equal(one, other) for one, other in zip(after, later, strict=True)]
    assert noticed == [True] * 8


# --8<-- [end:solution]
