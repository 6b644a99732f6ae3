"""The exercise of docs/learn/where-introductions-go-wrong.md."""

# --8<-- [start:solution]
import pytest
import torch

from regard.views import worked_example
from regard.views.explain.worked_example import KEYS, QUERIES


def test_the_weights_that_follow_from_the_printed_vectors() -> None:
    words = list(KEYS)
    queries = torch.tensor([QUERIES[word] for word in words])
    keys = torch.tensor([KEYS[word] for word in words])

    weights = torch.softmax(queries @ keys.T, dim=-1)  # a row for each word that looks

    it = dict(zip(words, weights[words.index("it")].tolist(), strict=True))
    assert it["tired"] == pytest.approx(0.229, abs=5e-4)
    assert it["it"] == pytest.approx(0.169, abs=5e-4)
    assert it["animal"] == pytest.approx(0.146, abs=5e-4)
    for number, word in enumerate(words):
        expected = worked_example(word, scaled=False).weights.float()
        torch.testing.assert_close(weights[number], expected)

    # No query has a negative number, and no key is larger than that of "tired" in any place. So
    # its score is the highest, whoever looks.
    tired = words.index("tired")
    assert (queries >= 0).all()
    assert (keys <= keys[tired]).all()
    assert weights.argmax(dim=-1).tolist() == [tired] * len(words)


# --8<-- [end:solution]
