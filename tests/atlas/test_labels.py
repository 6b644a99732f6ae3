"""Names of heads, each by its rule, at its threshold, and with its evidence."""

from typing import Any

import pytest

from regard.atlas.labels import kind_of, label_heads, labels_of
from regard.atlas.rules import FEWEST, RULES, Label
from tests.atlas.surveyed import coreference_row, head_row, relation_row, rows

SIMPLE = [rule for rule in RULES if rule.measure in head_row(0, 0)]


def names(row: dict[str, Any], **known: Any) -> list[str]:
    return [label.name for label in labels_of(row, **known)]


class TestMeasures:
    @pytest.mark.parametrize("rule", SIMPLE, ids=lambda rule: rule.measure)
    def test_from_the_threshold_on(self, rule: Any) -> None:
        at, below = (
            head_row(0, 0, **{rule.measure: value})
            for value in (rule.threshold, rule.threshold - 1e-6)
        )
        assert names(at) == [rule.label]
        assert names(below) == []

    def test_evidence_has_the_number_and_the_rule(self) -> None:
        assert labels_of(head_row(0, 0, previous=0.746)) == [
            Label("previous-token", "previous 0.746 ≥ 0.4")
        ]

    @pytest.mark.parametrize("rule", SIMPLE, ids=lambda rule: rule.measure)
    def test_evidence_never_contradicts_the_rule(self, rule: Any) -> None:
        (label,) = labels_of(head_row(0, 0, **{rule.measure: rule.threshold}))
        assert label.evidence == f"{rule.measure} {rule.threshold:.3f} ≥ {rule.threshold:g}"

    @pytest.mark.parametrize("missing", [None, float("nan")])
    def test_what_was_not_measured_says_nothing(self, missing: Any) -> None:
        assert names(head_row(0, 0, previous=missing)) == []
        assert names({}) == []

    def test_repeats_decide_on_induction_where_they_were_measured(self) -> None:
        assert names(head_row(0, 0, induction=0.9, repeats_induction=0.1)) == []
        assert names(head_row(0, 0, induction=0.9, repeats_induction=float("nan"))) == ["induction"]
        assert names(head_row(0, 0, induction=0.0, repeats_induction=0.9)) == ["induction"]

    @pytest.mark.parametrize(
        ("measure", "count"), [("same_token", "same_token_rows"), ("induction", "induction_rows")]
    )
    def test_a_few_rows_are_not_enough(self, measure: str, count: str) -> None:
        assert names(head_row(0, 0, **{measure: 0.9, count: FEWEST - 1})) == []
        assert len(names(head_row(0, 0, **{measure: 0.9, count: FEWEST}))) == 1

    def test_the_most_telling_comes_first(self) -> None:
        assert names(head_row(0, 0, sink_first=1.0, previous=0.5, same_token=0.5)) == [
            "duplicate-token",
            "previous-token",
            "sink",
        ]


class TestOffsets:
    def test_one_fixed_distance(self) -> None:
        shares = dict.fromkeys(range(-16, 17), 0.01)
        assert labels_of({}, offsets=shares | {-3: 0.41}) == [
            Label("positional", "offset −3 0.410 ≥ 0.3")
        ]
        assert labels_of({}, offsets=shares | {2: 0.3})[0].evidence == "offset +2 0.300 ≥ 0.3"
        assert names({}, offsets=shares | {-3: 0.29}) == []

    def test_neighbours_have_names_of_their_own(self) -> None:
        assert names({}, offsets={-1: 0.9, 0: 0.9, 1: 0.9, 2: 0.1}) == []

    def test_what_was_not_measured_says_nothing(self) -> None:
        assert names({}, offsets={-3: None, -2: float("nan")}) == []


class TestRelations:
    def test_the_best_head_is_named_after_it(self) -> None:
        row = relation_row(0, 0, 0.73, best=True)
        assert labels_of({}, relations=[row]) == [
            Label("obj → governor", "0.73 (0.68 to 0.78) of 400, against 0.40 at word offset −2")
        ]
        assert names({}, relations=[row | {"direction": "dependent"}]) == ["governor → obj"]

    @pytest.mark.parametrize(
        "change", [{"best": False}, {"total": FEWEST - 1}, {"low": 0.499}, {"offset_score": None}]
    )
    def test_only_if_it_is_beyond_doubt(self, change: dict[str, Any]) -> None:
        assert names({}, relations=[relation_row(0, 0, 0.8, best=True) | change]) == []

    def test_of_coreference_both_baselines_are_beaten(self) -> None:
        row = coreference_row(0, 0, 0.7, best=True)
        assert labels_of({}, coreference=[row]) == [
            Label("coreference", "0.70 (0.65 to 0.75) of 400, against 0.50 of the baseline")
        ]
        assert names({}, coreference=[row | {"same_head": 0.6}]) == []
        assert names({}, coreference=[row | {"nearest": 0.6}]) == []


def test_each_head_gets_its_own() -> None:
    made = rows()
    found = label_heads(made["heads"], made["offsets"], made["relations"], made["coreference"])
    assert [[label.name for label in labels] for labels in found] == [
        [],
        ["previous-token"],
        ["positional", "sink"],
        ["coreference"],
        ["obj → governor"],
        ["induction", "positional"],
    ]


def test_rules_have_marks_of_their_own() -> None:
    marks = {rule.label: rule.mark for rule in RULES}
    assert all(len(mark) == 1 for mark in marks.values())
    assert len(set(marks.values())) == len(marks)
    assert [kind_of(name) for name in ("sink", "obj → governor")] == ["sink", "relation"]
