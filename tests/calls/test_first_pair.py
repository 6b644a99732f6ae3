"""What to show first."""

import torch

from regard import AttentionMatrix
from regard.calls import AttentionCall
from regard.calls.first_pair import FIRST_SCREEN, FirstPair, first_pair
from regard.calls.texts import TextLayer, layers_of, texts_of

TOKENS = ["[CLS]", "the", "cat", "sat", ".", "down", "[SEP]"]


def layers(weights: torch.Tensor, tokens: list[str] = TOKENS) -> list[TextLayer]:
    """Return layers with these weights, [layers, heads, queries, keys]."""
    calls = [AttentionCall.of(AttentionMatrix.from_weights(one[None])) for one in weights]
    return layers_of(calls, texts_of(tokens, None), None)


def rows(*pairs: tuple[int, int, int, int, float], size: int = 7) -> torch.Tensor:
    """Return weights of two layers of two heads: all look at the first token, but for some."""
    weights = torch.zeros(2, 2, size, size)
    weights[..., 0] = 1.0
    # No decoder: the last token but one looks at the last.
    weights[..., -2, -1] = 0.05
    for layer, head, query, key, weight in pairs:
        weights[layer, head, query, key] = weight
        weights[layer, head, query, 0] = 1.0 - weight
    return weights


def test_the_word_that_looks_hardest_at_another_word() -> None:
    found = first_pair(layers(rows((0, 1, 2, 5, 0.3), (1, 0, 5, 2, 0.4))))
    assert found == FirstPair(1, 0, 5, 2, found.weight, False)
    assert abs(found.weight - 0.4) < 1e-6


def test_neighbours_special_tokens_and_punctuation_say_nothing() -> None:
    dull = [(0, 0, 2, 3, 0.9), (0, 0, 3, 3, 0.9), (0, 1, 2, 4, 0.9), (1, 1, 2, 6, 0.9)]
    # From a special token, or from punctuation.
    dull += [(1, 0, 6, 2, 0.9), (1, 0, 4, 1, 0.9)]
    found = first_pair(layers(rows(*dull, (1, 1, 1, 5, 0.1))))
    assert (found.layer, found.head, found.query, found.key) == (1, 1, 1, 5)
    assert first_pair(layers(rows(*dull))).key is None


def test_only_one_head_counts() -> None:
    both = layers(rows((0, 1, 2, 5, 0.3), (1, 0, 5, 2, 0.4)))
    found = first_pair(both, head=1)
    assert (found.layer, found.head, found.query) == (0, 1, 2)


def test_a_decoder_is_shown_where_it_goes_on() -> None:
    found = first_pair(layers(rows((0, 0, 5, 2, 0.9), (0, 1, 6, 3, 0.2)).tril()))
    assert found == FirstPair(0, 1, 6, 3, found.weight, True)


def test_what_is_shown_first_is_on_the_first_screen() -> None:
    size = FIRST_SCREEN + 40
    words = [f"word{number}" for number in range(size)]
    weights = rows((0, 0, size - 2, 5, 0.9), (0, 1, 9, 3, 0.2), size=size)
    found = first_pair(layers(weights, words))
    assert (found.head, found.query, found.key, found.is_last) == (1, 9, 3, False)


def test_the_layers_are_searched_some_rows_at_a_time() -> None:
    torch.manual_seed(0)
    weights = torch.rand(2, 2, 61, 61).softmax(dim=-1)
    found = first_pair(layers(weights, [f"w{number}" for number in range(61)]))
    near = (torch.arange(61)[:, None] - torch.arange(61)).abs() <= 2
    expected = weights.masked_fill(near, 0.0)
    expected[..., 0] = 0.0
    place = torch.unravel_index(expected.argmax(), expected.shape)
    assert [found.layer, found.head, found.query, found.key] == [int(x) for x in place]


def test_a_part_of_a_matrix_is_counted_as_it_is_shown() -> None:
    matrix = AttentionMatrix.from_weights(rows((0, 1, 5, 2, 0.4))[:1])
    calls = [AttentionCall.of(matrix[0, 1, 4:6])]
    (part,) = layers_of(calls, texts_of(TOKENS, None), None)
    found = first_pair([part])
    assert (found.head, found.query, found.key) == (0, 1, 2)
