"""The tables of an atlas, against a slow count of dense weights, and of sums made by hand."""

import json
import math
import random
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from materials import minilm
from regard.atlas import Atlas, survey
from regard.atlas.examples import EXAMPLES, Example, Examples, excerpt
from regard.atlas.tables import SCHEMA, as_arrow, tables
from regard.atlas.tally import Tally
from tests.atlas.surveying import book, dense, exact, sentences, small_model

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

TOKENIZER: Any = transformers.AutoTokenizer.from_pretrained(minilm())


class SlowCount:
    """What heads do, counted pair by pair, with all heads side by side: [layers, heads]."""

    def __init__(self, *, causal: bool) -> None:
        self.causal = causal
        self.sums: dict[Any, Any] = {}
        self.counts: dict[Any, int] = {}

    def add(self, name: Any, value: Any, eligible: int = 1) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + value
        self.counts[name] = self.counts.get(name, 0) + eligible

    def mean(self, name: Any) -> np.ndarray:
        return self.sums[name] / self.counts[name]

    def count(self, ids: list[int], weights: np.ndarray) -> None:
        size = len(ids)
        names = TOKENIZER.convert_ids_to_tokens(ids)
        special = [name in ("[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]") for name in names]
        signs = [not any(c.isalnum() for c in name.removeprefix("##")) for name in names]
        for i in range(size):
            row = weights[:, :, i]
            logs = np.log(row, where=row > 0, out=np.zeros_like(row))
            entropy = -(row * logs).sum(axis=-1)
            self.add("entropy", entropy)
            self.add("effective_keys", np.exp(entropy))
            self.add("separators", sum(row[..., j] for j in range(size) if special[j]))
            sign_keys = [j for j in range(size) if signs[j] and not special[j]]
            self.add("punctuation", sum((row[..., j] for j in sign_keys), np.zeros(row.shape[:2])))
            for j in range(size):
                self.add("mass", row[..., j])
                self.add(("distance", abs(i - j)), row[..., j])
                if abs(j - i) <= 16:
                    self.add(("offset", j - i), row[..., j])
            if i > 0:
                self.add("first", row[..., 0])
            copies = [j for j in range(i) if ids[j] == ids[i]]
            if copies:
                self.add("same_token", sum(row[..., j] for j in copies))
            successors = [j + 1 for j in copies if j + 1 < i]
            if successors:
                self.add("induction", sum(row[..., j] for j in successors))
        if size >= 16:
            self._count_sinks(weights)

    def _count_sinks(self, weights: np.ndarray) -> None:
        size = weights.shape[2]
        means: list[np.ndarray] = []
        for j in range(size):
            lookers = [i for i in range(size) if i >= j or not self.causal]
            if len(lookers) >= 16:
                means.append(sum(weights[:, :, i, j] for i in lookers) / len(lookers))
        self.add("sink_first", 1.0 * (means[0] > 0.3))
        self.add("sinks", sum(1.0 * (mean > 0.3) for mean in means))
        self.add("received_top", np.max(means, axis=0))

    def at_distances(self, nearest: int, farthest: int) -> np.ndarray:
        found = [self.sums.get(("distance", d), 0.0) for d in range(nearest, farthest + 1)]
        return sum(found) + np.zeros_like(self.sums["mass"])

    def distance_mean(self) -> np.ndarray:
        longest = max(name[1] for name in self.sums if name[0] == "distance")
        all_mass = sum(d * self.sums["distance", d] for d in range(longest + 1))
        return all_mass / self.sums["mass"]


REAL = pytest.param("minilm", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["encoder", "decoder", REAL])
def counted(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Atlas, SlowCount]:
    """Survey 50 real sentences and a longer text, and count slowly what heads do in them."""
    folder = tmp_path_factory.mktemp(request.param)
    texts = sentences(50)
    if request.param != "minilm":
        # Long enough for distances whose bins have more than one.
        texts.append(book(60_000, 900))
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "texts.jsonl").write_text(lines, encoding="utf-8")
    model = minilm() if request.param == "minilm" else small_model(folder / "m", request.param)
    atlas = survey(folder / "texts.jsonl", folder / "a.atlas", exact(model), progress=False)
    slow = SlowCount(causal=request.param == "decoder")
    windows = [TOKENIZER(text)["input_ids"] for text in texts]
    for ids, weights in zip(windows, dense(model, windows), strict=True):
        slow.count(ids, weights)
    assert atlas.about.windows == len(texts)
    assert atlas.about.tokens == sum(map(len, windows)) == slow.counts["entropy"]
    return atlas, slow


def by_head(atlas: Atlas, column: str) -> np.ndarray:
    heads = atlas.heads.sort_values(["layer", "head"])
    return heads[column].to_numpy().reshape(atlas.about.layers, atlas.about.heads)


MEASURES = ["entropy", "effective_keys", "first", "separators", "punctuation", "same_token"]
MEASURES += ["induction", "sink_first", "sinks", "received_top"]


@pytest.mark.parametrize("measure", MEASURES)
def test_measures_are_those_of_padded_batches(
    counted: tuple[Atlas, SlowCount], measure: str
) -> None:
    atlas, slow = counted
    np.testing.assert_allclose(by_head(atlas, measure), slow.mean(measure), rtol=1e-9, atol=1e-12)


def test_counts_are_those_of_eligible_rows(counted: tuple[Atlas, SlowCount]) -> None:
    atlas, slow = counted
    for column, name in {
        "rows": "entropy",
        "same_token_rows": "same_token",
        "induction_rows": "induction",
    }.items():
        assert set(atlas.heads[column]) == {slow.counts[name]}


@pytest.mark.parametrize(("measure", "offset"), [("itself", 0), ("previous", -1), ("next", 1)])
def test_neighbours_count_over_rows_that_have_them(
    counted: tuple[Atlas, SlowCount], measure: str, offset: int
) -> None:
    atlas, slow = counted
    expected = slow.mean(("offset", offset))
    np.testing.assert_allclose(by_head(atlas, measure), expected, rtol=1e-9, atol=1e-12)


def test_offsets_are_those_of_padded_batches(counted: tuple[Atlas, SlowCount]) -> None:
    atlas, slow = counted
    assert len(atlas.offsets) == atlas.about.layers * atlas.about.heads * 33
    for row in atlas.offsets.itertuples():
        expected = slow.mean(("offset", row.offset))[row.layer, row.head]
        assert row.share == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_distances_are_those_of_padded_batches(counted: tuple[Atlas, SlowCount]) -> None:
    atlas, slow = counted
    expected = {
        bounds: slow.at_distances(*bounds) / slow.sums["mass"]
        for bounds in set(zip(atlas.distances.nearest, atlas.distances.farthest, strict=True))
    }
    for row in atlas.distances.itertuples():
        share = expected[row.nearest, row.farthest][row.layer, row.head]
        assert row.share == pytest.approx(share, rel=1e-9, abs=1e-12)
    for _, rows in atlas.distances.groupby(["layer", "head"]):
        # Bins follow one another, and hold everything.
        assert list(rows.nearest) == [0, *(rows.farthest[:-1] + 1)]
        assert math.isclose(rows.share.sum(), 1.0)


def test_the_mean_distance_and_quantiles_are_those_of_padded_batches(
    counted: tuple[Atlas, SlowCount],
) -> None:
    atlas, slow = counted
    found = by_head(atlas, "distance_mean")
    np.testing.assert_allclose(found, slow.distance_mean(), rtol=1e-9)
    ends = sorted(set(atlas.distances.farthest))
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        # The end of the first bin within which so much lies.
        within = [slow.at_distances(0, end) / slow.sums["mass"] >= share for end in ends]
        expected = np.array(ends)[np.argmax(within, axis=0)]
        np.testing.assert_array_equal(by_head(atlas, f"distance_p{round(100 * share)}"), expected)


def made_tally(heads: int = 2) -> Tally:
    """Return sums over ten rows of two windows, by hand: one layer, all mass on the query."""
    tally = Tally()
    near, far = np.zeros((heads, 33)), np.zeros((heads, 6))
    near[:, 16] = far[:, 0] = 10.0
    both = {"near": near, "far": far, "mass": np.full(heads, 10.0)}
    zero = ["entropy", "distance", "first", "separators", "punctuation", "same", "after"]
    both |= dict.fromkeys([*zero, "first_sinks", "sinks", "top"], np.zeros(heads))
    both["effective"] = np.full(heads, 10.0)
    for name, values in both.items():
        tally.add(name, values, call=0)
    totals = {"rows": 10, "windows": 2, "same_rows": 0, "after_rows": 0, "sink_windows": 0}
    totals["near_rows"] = [10 if abs(offset) < 5 else 0 for offset in range(-16, 17)]
    for name, values in totals.items():
        tally.add(name, values)
    tally.modules = ["attention"]
    return tally


def test_what_was_not_measured_is_unknown() -> None:
    made = tables(made_tally())
    for row in made["heads"]:
        unknown = ("same_token", "induction", "sink_first", "sinks", "received_top")
        assert [row[name] for name in unknown] == [None] * 5
        assert "repeats_induction" not in row
        assert (row["itself"], row["previous"], row["effective_keys"]) == (1.0, 0.0, 1.0)
        assert [row[f"distance_p{share}"] for share in (10, 50, 90)] == [0.0, 0.0, 0.0]
    for row in made["offsets"]:
        assert (row["share"] is None) == (abs(row["offset"]) >= 5)
    arrow = as_arrow(made_tally())
    assert arrow["heads"].column("repeats_induction").to_pylist() == [None, None]
    assert {name: table.column_names for name, table in arrow.items()} == {
        name: list(columns) for name, columns in SCHEMA.items()
    }


def test_heads_that_a_layer_lacks_are_in_no_table() -> None:
    tally = made_tally(heads=3)
    for name, values in made_tally(heads=2).sums.items():
        if values.ndim > 1:
            tally.add(name, values[0], call=1)
    tally.modules = ["attention", "attention"]
    for name, rows in tables(tally).items():
        places = {(row["layer"], row["head"]) for row in rows}
        expected = {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)}
        assert places == (expected if name in ("heads", "offsets", "distances") else set())


# Few values, so that many are equal.
some_examples = st.lists(
    st.builds(
        Example,
        priority=st.sampled_from([0.0, 0.5, 1.0]),
        weight=st.sampled_from([0.1, 0.2]),
        document=st.sampled_from("abcdef"),
        text=st.just("text"),
        **dict.fromkeys(["query_start", "query_end", "key_start", "key_end"], st.integers(0, 2)),
    ),
    max_size=40,
)


@given(some_examples, st.randoms(use_true_random=False), st.integers(1, 5))
def test_which_examples_are_kept_depends_on_no_order(
    examples: list[Example], chance: random.Random, parts: int
) -> None:
    expected = sorted(map(astuple, examples), reverse=True)[:EXAMPLES]
    chance.shuffle(examples)
    merged = Examples()
    for part in range(parts):
        some = Examples()
        for example in examples[part::parts]:
            # As a survey does.
            if some.would_keep(0, 1, example.priority):
                some.add(0, 1, example)
        merged.merge(Examples.from_data(json.loads(json.dumps(some.as_data()))))
    assert [astuple(example) for _, _, example in merged] == expected


@given(
    st.text("ab \n", max_size=900),
    st.tuples(*(st.tuples(st.integers(0, 900), st.integers(0, 12)) for _ in range(2))),
)
def test_an_excerpt_has_both_places(text: str, places: Any) -> None:
    query, key = ((min(a, len(text)), min(a + b, len(text))) for a, b in places)
    short, *found = excerpt(text, query, key)
    assert len(short) <= 600
    for (start, stop), (begin, end) in zip((query, key), found, strict=True):
        assert 0 <= begin <= end <= len(short)
        assert short[begin:end] == text[start:stop]


def test_an_atlas_says_what_is_wrong_with_it(
    counted: tuple[Atlas, SlowCount], tmp_path: Path
) -> None:
    atlas, _ = counted
    assert repr(atlas).endswith(
        f"{atlas.about.model}, {atlas.about.layers} × {atlas.about.heads} heads, "
        f"{atlas.about.tokens:,} tokens of {atlas.about.documents} documents)"
    )
    with pytest.raises(ValueError, match=r"name must be one of heads, .*, got 'rows'"):
        atlas.table("rows")
    with pytest.raises(FileNotFoundError, match=r"there is no atlas at .*: pass the output folder"):
        Atlas(tmp_path)
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is not finished: run the survey again"):
        Atlas(tmp_path)
    about = json.loads((atlas.path / "atlas.json").read_text(encoding="utf-8"))
    for wrong, message in [
        ("{", "must be JSON"),
        ("[]", "is not of an atlas"),
        (json.dumps(about | {"version": 2}), "has format version 2, and this Regard reads up to 1"),
        (json.dumps({"format": about["format"], "version": 1}), "lacks date, documents"),
    ]:
        (tmp_path / "atlas.json").write_text(wrong, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Atlas(tmp_path)
    (tmp_path / "atlas.json").write_text(json.dumps(about), encoding="utf-8")
    (tmp_path / "heads.parquet").write_bytes(b"PAR1")
    for name in ("heads", "offsets"):
        with pytest.raises(ValueError, match=f"can't read {name}.parquet of "):
            Atlas(tmp_path).table(name)
