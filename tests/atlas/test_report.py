"""The report of a survey: what is in its file, and that it can do no harm."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pyarrow
import pytest

from regard.atlas.report import report
from regard.atlas.report.about import headline
from regard.atlas.report.examples import AROUND, HighlightSpan, pieces_of
from regard.atlas.report.facts import facts_of
from regard.atlas.report.measures import MEASURES
from regard.atlas.report.scores import relations_of
from regard.atlas.rules import RULES
from tests.atlas.surveyed import ABOUT, HOSTILE, head_row, rows, tables


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return facts_of(tables(), ABOUT)


class TestFacts:
    def test_heads_have_their_measures(self, facts: dict[str, Any]) -> None:
        names = [measure["id"] for measure in facts["measures"]]
        for found, row in zip(facts["heads"], rows()["heads"], strict=True):
            assert (found["layer"], found["head"]) == (row["layer"], row["head"])
            for name, value in zip(names, found["values"], strict=True):
                expected = None if row[name] is None else pytest.approx(row[name], rel=1e-3)
                assert value == expected, name

    def test_heads_are_in_order_whatever_the_table(self) -> None:
        made = rows()["heads"]
        found = facts_of({"heads": pyarrow.Table.from_pylist(made[::-1])}, {})
        assert [(head["layer"], head["head"]) for head in found["heads"]] == [
            (row["layer"], row["head"]) for row in made
        ]

    def test_distances_are_joined_by_half_octaves(self, facts: dict[str, Any]) -> None:
        assert facts["distances"] == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 5)]
        assert facts["heads"][0]["distances"] == pytest.approx([0.1, 0.4, 0.2, 0.1, 0.2])

    def test_offsets_stand_in_order(self, facts: dict[str, Any]) -> None:
        assert facts["offsets"] == list(range(-16, 17))
        assert facts["heads"][2]["offsets"][14] == 0.5

    def test_labels_have_their_heads_the_strongest_first(self) -> None:
        made = [
            head_row(0, head, sink_first=share, labels=["sink"], evidence=["e"])
            for head, share in enumerate((0.6, 0.9, 0.7))
        ]
        found = facts_of({"heads": pyarrow.Table.from_pylist(made)}, {})["labels"]
        assert [group["label"] for group in found if group["heads"]] == ["sink"]
        assert found[-1]["heads"] == [
            {"head": head, "strength": share} for head, share in ((1, 0.9), (2, 0.7), (0, 0.6))
        ]

    def test_the_best_head_of_a_relation_comes_first(self, facts: dict[str, Any]) -> None:
        (relation,) = facts["relations"]
        assert relation["name"] == "obj → governor"
        assert relation["meaning"] == "object"
        assert relation["heads"][0] == {
            "head": 4,
            "best": True,
            "score": 0.8,
            "low": 0.75,
            "high": 0.85,
        }
        assert [head["head"] for head in relation["heads"][1:]] == [5, 3, 2, 1, 0]
        assert relation["baselines"] == [{"name": "word at −2", "score": 0.4}]
        assert relation["gain"] == pytest.approx(0.75 - 0.4)
        assert facts["coreference"][0]["heads"][0]["head"] == 3

    def test_few_pairs_come_after_many(self) -> None:
        about = {"layer": 0, "head": 0, "direction": "governor", "best": True, "offset": -1}
        seen = [
            about | {"relation": "expl", "score": 1.0, "low": 0.34, "high": 1.0, "total": 2},
            about | {"relation": "dep", "score": 1.0, "low": 0.21, "high": 1.0, "total": 1},
            about | {"relation": "obj", "score": 0.9, "low": 0.88, "high": 0.92, "total": 834},
        ]
        for row, offset_score in zip(seen, (0.0, None, 0.4), strict=True):
            row["offset_score"] = offset_score
        found = relations_of(seen, {(0, 0): 0})
        assert [one["name"].split()[0] for one in found] == ["obj", "expl", "dep"]

    def test_every_rule_is_told(self, facts: dict[str, Any]) -> None:
        assert [rule["label"] for rule in facts["rules"]] == [rule.label for rule in RULES]
        assert all(
            f"{rule.threshold:g}" in told["rule"]
            for rule, told in zip(RULES, facts["rules"], strict=True)
        )

    def test_where_it_comes_from(self, facts: dict[str, Any]) -> None:
        assert facts["provenance"][:3] == [
            ("model", "a/model<b>"),
            ("source", "books/"),
            ("documents", "3"),
        ]
        assert ("window length", "1,024") in facts["provenance"]
        assert ("versions", "torch 2.9.0") in facts["provenance"]
        assert facts["skipped"] == [("sentence longer than the window", 12), ("not UTF-8", 1)]

    def test_all_but_heads_may_be_missing(self) -> None:
        made = [{"layer": 0, "head": 0, "entropy": float("nan")}]
        found = facts_of({"heads": pyarrow.Table.from_pylist(made)}, {})
        # There is no effect that was not measured.
        assert found["heads"][0]["values"] == [None] * (len(MEASURES) - 1)
        assert found["relations"] == found["coreference"] == found["examples"] == []

    def test_without_heads_there_is_no_report(self) -> None:
        with pytest.raises(ValueError, match=r"a row for each head, got examples"):
            facts_of(tables("examples"), ABOUT)


class TestExamples:
    @pytest.mark.parametrize("text", [*HOSTILE, "plain words", "", "x" * 5000 + " y " + "z" * 5000])
    def test_pieces_are_the_text(self, text: str) -> None:
        query, key = HighlightSpan(2, 6), HighlightSpan(3, len(text) // 2)
        pieces = pieces_of(text, query, key)
        whole = "".join(piece for piece, _ in pieces)
        if "…" in whole:
            assert len(whole) < len(text)
            pattern = ".*".join(re.escape(part) for part in whole.split("…"))
            assert re.fullmatch(pattern, text, flags=re.DOTALL)
        else:
            assert whole == text

    def test_characters_are_counted_as_python_does(self) -> None:
        text = "👩‍👩‍👧 fox 🦊 sat"
        query, key = (
            HighlightSpan(text.index(word), text.index(word) + len(word)) for word in ("sat", "🦊")
        )
        assert [piece for piece in pieces_of(text, query, key) if piece[1]] == [
            ("🦊", "key"),
            ("sat", "query"),
        ]

    def test_spaces_are_left_out_of_marks(self) -> None:
        assert pieces_of("The cat", HighlightSpan(3, 7), HighlightSpan(0, 3)) == [
            ("The", "key"),
            (" ", ""),
            ("cat", "query"),
        ]

    def test_a_token_may_look_at_itself_or_at_a_part(self) -> None:
        assert pieces_of("ab", HighlightSpan(0, 2), HighlightSpan(0, 2)) == [("ab", "both")]
        assert pieces_of("abc", HighlightSpan(0, 3), HighlightSpan(1, 2)) == [
            ("a", "query"),
            ("b", "both"),
            ("c", "query"),
        ]

    @pytest.mark.parametrize(
        "span",
        [HighlightSpan(-5, 3), HighlightSpan(2, 99), HighlightSpan(99, 120), HighlightSpan(3, 1)],
    )
    def test_marks_that_do_not_fit_do_no_harm(self, span: HighlightSpan) -> None:
        assert (
            "".join(piece for piece, _ in pieces_of("some text", span, HighlightSpan(0, 4)))
            == "some text"
        )

    def test_far_from_marks_a_text_is_shortened_between_words(self) -> None:
        words = [f"w{number}" for number in range(2000)]
        text = " ".join(words)
        query, key = (
            HighlightSpan(text.index(word), text.index(word) + len(word))
            for word in ("w100 ", "w1900")
        )
        pieces = pieces_of(text, query, key)
        assert sum(len(piece) for piece, _ in pieces) <= 4 * AROUND + 12 + len("w100w1900")
        kept = " ".join(piece for piece, _ in pieces).replace("…", " ").split()
        assert set(kept) <= set(words)


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


class TestDocument:
    def test_no_text_becomes_an_element(self) -> None:
        elements = _Elements()
        elements.feed(report(tables(), ABOUT))
        assert [tag for tag, _ in elements.found] == [
            *("html", "head", "meta", "meta", "meta", "title", "style", "body", "div"),
            *("noscript", "script", "script"),
        ]

    def test_may_ask_nobody_for_anything(self) -> None:
        elements = _Elements()
        elements.feed(report(tables("heads"), ABOUT))
        policy = next(
            given["content"]
            for _, given in elements.found
            if given.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy
        assert policy.startswith("default-src 'none'")
        assert not re.search(r"https?:|\*|self", policy)
        assert not [given for _, given in elements.found if given.keys() & {"src", "href"}]

    def test_holds_the_facts(self, facts: dict[str, Any]) -> None:
        html = report(tables(), ABOUT)
        data = re.search(r'id="regard-atlas">(.*?)</script>', html, flags=re.DOTALL)
        assert data is not None
        assert json.loads(data[1]) == json.loads(json.dumps(facts))

    def test_the_title_names_the_model(self) -> None:
        assert "<title>a/model&lt;b&gt; · atlas</title>" in report(tables("heads"), ABOUT)


def test_one_of_a_kind_is_not_a_plural() -> None:
    about = {"layers": 1, "heads": 12, "documents": 1, "tokens": 1234}
    assert headline(about) == "1 layer · 12 heads · 1 document · 1,234 tokens"
