"""A worked example of attention: one sentence, with vectors of three numbers."""

from regard.views.explain.explanation import Explanation, explain

SENTENCE = "The animal didn't cross the street because it was too tired"
ASKING = "it"

QUERIES = {
    "The": (0.1, 0.2, 0.3),
    "animal": (0.5, 0.4, 0.3),
    "didn't": (0.2, 0.1, 0.1),
    "cross": (0.0, 0.1, 0.2),
    "street": (0.4, 0.3, 0.2),
    "it": (0.6, 0.5, 0.4),
    "was": (0.1, 0.1, 0.0),
    "tired": (0.7, 0.6, 0.5),
}
KEYS = {
    "The": (0.2, 0.1, 0.0),
    "animal": (0.6, 0.5, 0.4),
    "didn't": (0.1, 0.2, 0.1),
    "cross": (0.2, 0.1, 0.3),
    "street": (0.5, 0.4, 0.3),
    "it": (0.7, 0.6, 0.5),
    "was": (0.1, 0.0, 0.2),
    "tired": (0.9, 0.8, 0.7),
}
VALUES = {
    "The": (0.1, 0.2, 0.3),
    "animal": (0.7, 0.6, 0.5),
    "didn't": (0.1, 0.1, 0.2),
    "cross": (0.0, 0.1, 0.1),
    "the": (0.2, 0.3, 0.2),
    "street": (0.5, 0.4, 0.3),
    "because": (0.1, 0.2, 0.1),
    "it": (0.6, 0.5, 0.4),
    "was": (0.1, 0.1, 0.0),
    "too": (0.0, 0.0, 0.1),
    "tired": (0.8, 0.7, 0.6),
}
"""Eleven words have values, eight have queries and keys: three words can't be looked at."""


def worked_example(asking: str = ASKING, *, scaled: bool = True) -> Explanation:
    """Return the worked example for one of its words.

    Args:
        asking: the query word.
        scaled: whether to divide scores by √3.

    Raises:
        ValueError: the word has no query.

    >>> found = worked_example()
    >>> found.tokens[found.weights.argmax()], round(found.weights.max().item(), 3)
    ('tired', 0.18)
    """
    if asking not in QUERIES:
        known = ", ".join(QUERIES)
        raise ValueError(f"the worked example has queries for {known}, got {asking!r}")
    tokens = list(KEYS)
    return explain(
        tokens,
        QUERIES[asking],
        [KEYS[token] for token in tokens],
        [VALUES[token] for token in tokens],
        asking=asking,
        scale=None if scaled else 1.0,
    )
