"""The rules of labels."""

from dataclasses import dataclass

FEWEST = 100
"""Minimum rows of a head, or pairs of a relation, for a label."""


@dataclass(frozen=True)
class Rule:
    """A rule that gives heads a label.

    Attributes:
        label: the label.
        mark: a single character for it.
        measure: the measure to compare.
        threshold: its minimum.
        meaning: a description of such heads.
        rows: the column with the number of rows of the measure, which must be at least `FEWEST`;
            "" if it is all rows.
        unless: a measure that disables the rule if it exists, or "".
    """

    label: str
    mark: str
    measure: str
    threshold: float
    meaning: str
    rows: str = ""
    unless: str = ""


RULES = (
    Rule(
        "induction",
        "I",
        "repeats_induction",
        0.4,
        "looks at what came after an earlier copy of the token, on random tokens repeated twice",
    ),
    Rule(
        "induction",
        "I",
        "induction",
        0.2,
        "looks at what came after an earlier copy of the token, on the corpus",
        rows="induction_rows",
        unless="repeats_induction",
    ),
    Rule(
        "duplicate-token",
        "D",
        "same_token",
        0.2,
        "looks at earlier copies of the token",
        rows="same_token_rows",
    ),
    Rule("previous-token", "P", "previous", 0.4, "looks at the token before"),
    Rule("next-token", "N", "next", 0.4, "looks at the token after"),
    Rule(
        "relation",
        "R",
        "relation_gain",
        0.1,
        "of all heads the best at a grammatical relation, better than always looking as many words "
        "away; the label names the relation",
    ),
    Rule(
        "coreference",
        "C",
        "coreference_gain",
        0.1,
        "of all heads the best at finding an earlier mention of the same thing, better than taking "
        "the nearest mention, or the nearest that has the same head word",
    ),
    Rule(
        "positional",
        "±",
        "fixed_offset",
        0.3,
        "looks at one fixed distance, from 2 to 16 tokens before or after",
    ),
    Rule("own-token", "O", "itself", 0.4, "looks at the token itself"),
    Rule("punctuation", "!", "punctuation", 0.5, "looks at punctuation"),
    Rule("separator", "/", "separators", 0.5, "looks at special tokens and ends of lines"),
    Rule(
        "sink",
        "S",
        "sink_first",
        0.5,
        "in most windows, nearly every token looks at the first one: the head is mostly at rest",
    ),
)
"""All rules, the most specific first. Relations and coreference are compared by the lower end of
the score's interval minus the better baseline."""

MEASURES_OF_RULES = {
    "relation_gain": "lower end of the score − baseline",
    "coreference_gain": "lower end of the score − better baseline",
    "fixed_offset": "largest share of an offset",
}
"""Names of measures that are not columns of the table of heads."""


@dataclass(frozen=True)
class Label:
    """A label of a head.

    Attributes:
        name: the label of a rule, or a relation such as "obj → governor".
        evidence: the evidence, such as "previous 0.740 ≥ 0.4".
    """

    name: str
    evidence: str
