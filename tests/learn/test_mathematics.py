"""The exercise of docs/learn/mathematics.md."""

# --8<-- [start:solution]
import torch

from regard.views import explain, worked_example


def test_a_vector_that_is_added_to_all_keys_changes_nothing() -> None:
    before = worked_example("it")
    added = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    after = explain(before.tokens, before.query, before.keys + added, before.values)

    # Each score grows by the same number, the query times what was added …
    growth = before.query @ added
    assert growth.abs() > 0.1
    torch.testing.assert_close(after.scores, before.scores + growth)
    # … which stands above and below the line of the softmax.
    torch.testing.assert_close(after.weights, before.weights)
    torch.testing.assert_close(after.output, before.output)


# --8<-- [end:solution]
