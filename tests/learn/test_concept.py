"""The exercise of docs/learn/concept.md."""

# --8<-- [start:solution]
import torch

import regard

WORDS = "Apple hired the cook who peeled an apple".lower().split()
TABLE = {"apple": [1.0, 1.0], "hired": [0.0, 2.0], "cook": [2.0, 0.5], "peeled": [2.0, 0.0]}


def test_alike_vectors_stay_alike_when_everyone_looks_at_everyone() -> None:
    vectors = torch.tensor([TABLE.get(word, [0.0, 0.0]) for word in WORDS])
    x = vectors[None, None]

    everyone = regard.attend(x, x, x, scale=1.0)[0, 0]
    torch.testing.assert_close(everyone[0], everyone[7])  # the same question, the same answer

    nearby = regard.window(before=2, after=2)
    near = regard.attend(x, x, x, pattern=nearby, scale=1.0)[0, 0]
    assert near[0, 0] < near[7, 0]  # less food in Apple
    assert near[0, 1] > near[7, 1]  # and more trade

    # A mean lies between the least and the most of what it is a mean of.
    for seen in (everyone, near):
        assert (seen >= vectors.min(dim=0).values).all()
        assert (seen <= vectors.max(dim=0).values).all()


# --8<-- [end:solution]
