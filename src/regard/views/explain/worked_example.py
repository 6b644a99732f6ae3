"""The worked example of an introduction to self-attention, with correct numbers."""

from regard.views.explain.explanation import Explanation, explain, vector

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
"""Eleven words have values, eight have queries and keys: three words have no weight."""

PRINTED_TABLE = {
    "The": 0.05,
    "animal": 0.60,
    "didn't": 0.02,
    "cross": 0.03,
    "street": 0.20,
    "it": 0.00,
    "was": 0.02,
    "tired": 0.08,
}
"""The weights in the introduction's table."""

PRINTED_SUM_WEIGHTS = {
    "The": 0.05,
    "animal": 0.70,
    "didn't": 0.02,
    "cross": 0.01,
    "the": 0.01,
    "street": 0.20,
    "because": 0.01,
    "it": 0.00,
    "was": 0.01,
    "too": 0.00,
    "tired": 0.00,
}
"""The weights of the introduction's sum."""

PRINTED_SUM = (0.598, 0.518, 0.432)


def worked_example(asking: str = ASKING, *, scaled: bool = True) -> Explanation:
    """Return the worked example for one of its words.

    Args:
        asking: the query word.
        scaled: whether to divide scores by √3, which the introduction does not.

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
        notes=_notes() if asking == ASKING else (),
    )


def _notes() -> list[str]:
    """Return where the printed figures don't follow from the vectors."""
    tokens = list(KEYS)
    plain = explain(tokens, QUERIES[ASKING], list(KEYS.values()), scale=1.0)
    weights: dict[str, float] = dict(zip(tokens, plain.weights.tolist(), strict=True))
    best = tokens[int(plain.weights.argmax())]
    total = sum(PRINTED_SUM_WEIGHTS.values())
    right = [
        sum(weight * VALUES[token][axis] for token, weight in PRINTED_SUM_WEIGHTS.items())
        for axis in range(3)
    ]
    return [
        f"These vectors make “{ASKING}” look at “{best}” most, with {weights[best]:.3f} (before "
        f"scaling), and at “animal” with {weights['animal']:.3f}. The introduction that they come "
        f"from prints {PRINTED_TABLE['animal']:.2f} for “animal” in its table and "
        f"{PRINTED_SUM_WEIGHTS['animal']:.2f} in its text; neither follows from the vectors.",
        f"The weights in its text add up to {total:.2f}, and softmax to 1. The sum of the values "
        f"by those weights is {vector(right)}; it prints {vector(PRINTED_SUM)}.",
        f"It gives keys for {len(KEYS)} words and values for {len(VALUES)}: “the”, “because” and "
        "“too” can't be looked at here.",
    ]
