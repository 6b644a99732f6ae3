"""The probe of relations against Clark's definition in loops, and by hand."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import transformers

from materials import minilm
from regard.atlas.annotated_windows import sentence_windows
from regard.atlas.probes import Relations
from regard.atlas.tally import Tally
from regard.atlas.window import Notes, TokenWindow
from tests.atlas.probing import Weights, dense, documents_of, made, model_of, survey, word_weights

# Dogs chase cats.
DOGS = Notes(("Dogs", "chase", "cats", "."), (1, -1, 1, 1), ("nsubj:x", "root", "obj", "punct"))


def scored(probe: Relations, window: TokenWindow, weights: list[list[float]]) -> Tally:
    """Score one head with these weights between words."""
    tally = Tally()
    probe.score([window], np.array(weights, dtype=np.float64)[None, None], 0, tally)
    probe.count([window], tally)
    return tally


def counts(tally: Tally) -> dict[str, int]:
    """Return hits and totals, without the names of the probe and the split."""
    return {
        name.removeprefix("relations/").rsplit("/", 1)[0]: int(values.item())
        for name, values in tally.sums.items()
        if "/offsets/" not in name
    }


def test_a_sentence_by_hand() -> None:
    weights = [
        [0.9, 0.06, 0.04, 0.0],  # Dogs, but for itself, looks at chase.
        [0.1, 0.5, 0.3, 0.1],  # chase looks at cats.
        [0.6, 0.2, 0.1, 0.1],  # cats looks at Dogs.
        [0.0, 0.0, 0.0, 1.0],
    ]
    tally = scored(Relations(), made(DOGS), weights)
    assert counts(tally) == {
        "nsubj/governor/hits": 1,
        "nsubj/governor/total": 1,
        "nsubj/dependent/hits": 0,
        "nsubj/dependent/total": 1,
        "obj/governor/hits": 0,
        "obj/governor/total": 1,
        "obj/dependent/hits": 1,
        "obj/dependent/total": 1,
    }
    offsets = {name: np.flatnonzero(x) - 32 for name, x in tally.sums.items() if "offsets" in name}
    assert {name: far.tolist() for name, far in offsets.items()} == {
        "relations/nsubj/governor/offsets/0": [1],
        "relations/nsubj/dependent/offsets/0": [-1],
        "relations/obj/governor/offsets/0": [-1],
        "relations/obj/dependent/offsets/0": [1],
    }
    assert {values.shape for name, values in tally.sums.items() if "offsets" in name} == {(65,)}


def test_of_a_causal_model_only_what_is_before_counts() -> None:
    weights = [
        [1.0, 0.0, 0.0, 0.0],
        [0.1, 0.9, 0.0, 0.0],  # chase: Dogs is the only word before it.
        [0.2, 0.7, 0.1, 0.0],  # cats looks at chase.
        [0.0, 0.0, 0.0, 1.0],
    ]
    tally = scored(Relations(causal=True), made(DOGS, split=1), weights)
    assert counts(tally) == {
        "nsubj/dependent/hits": 1,
        "nsubj/dependent/total": 1,
        "obj/governor/hits": 1,
        "obj/governor/total": 1,
    }
    assert all(name.endswith("/1") for name in tally.sums)


def test_the_first_of_equals_and_never_nothing() -> None:
    equal = [[0.25] * 4] * 4
    found = counts(scored(Relations(), made(DOGS), equal))
    # The first other word is chase for Dogs, and Dogs for all others.
    assert [name for name, hits in found.items() if "hits" in name and hits] == [
        "nsubj/governor/hits",
        "nsubj/dependent/hits",
    ]
    nothing = np.eye(4).tolist()
    found = counts(scored(Relations(), made(DOGS), nothing))
    assert not any(hits for name, hits in found.items() if "hits" in name)


def test_distances_beyond_reach_are_no_offsets() -> None:
    size = 40
    notes = Notes(("x",) * size, (-1, *[0] * (size - 1)), ("root", *["dep"] * (size - 1)))
    tally = Tally()
    Relations().count([made(notes)], tally)
    assert int(tally.sums["relations/dep/governor/total/0"]) == 39
    assert tally.sums["relations/dep/governor/offsets/0"].tolist() == [1] * 32 + [0] * 33
    assert tally.sums["relations/dep/dependent/offsets/0"].tolist() == [0] * 33 + [1] * 32


def test_a_batch_of_sentences_with_different_numbers_of_words() -> None:
    # Four tokens each; in the second, the last two are one word.
    two = TokenWindow(
        kind="sentence",
        name="made/1",
        ids=(0, 1, 2, 3),
        offsets=((0, 1), (1, 2), (2, 3), (3, 4)),
        special=(False,) * 4,
        text="xxxx",
        words=((0, 1), (2, 4)),
        notes=Notes(("a", "b"), (1, -1), ("det", "root")),
    )
    groups = Relations().groups([made(DOGS), two])
    assert groups.queries.shape == groups.keys.shape == (2, 4, 4)
    assert groups.queries[0].tolist() == np.eye(4).tolist()
    assert groups.queries[1].tolist() == [[1, 0, 0, 0], [0, 0, 0.5, 0.5], [0] * 4, [0] * 4]
    assert groups.keys[1].tolist() == [[1, 0, 0, 0], [0, 0, 1, 1], [0] * 4, [0] * 4]


def test_a_window_without_notes() -> None:
    window = TokenWindow("sentence", "books/3", (5,), ((0, 1),), (False,), "x")
    with pytest.raises(ValueError, match=r"must have notes, got 'books/3' without: use ann"):
        Relations().count([window], Tally())


def in_loops(windows: list[TokenWindow], every: list[Weights], causal: bool) -> dict[str, Any]:
    """Count hits and totals word by word and head by head."""
    hits: dict[str, Any] = {}
    totals: Counter[str] = Counter()
    for window, weights in zip(windows, every, strict=True):
        assert window.notes is not None
        words = word_weights(window, weights)
        for dependent, governor in enumerate(window.notes.governors):
            relation = window.notes.relations[dependent].split(":")[0]
            if governor == -1 or relation == "punct":
                continue
            for direction, query, target in (
                ("governor", dependent, governor),
                ("dependent", governor, dependent),
            ):
                others = [j for j in range(len(window.words)) if j != query]
                if causal:
                    others = [j for j in others if j < query]
                if target not in others:
                    continue
                name = f"relations/{relation}/{direction}"
                totals[f"{name}/total/{window.split}"] += 1
                name = f"{name}/hits/{window.split}"
                right = hits.setdefault(name, np.zeros(weights.shape[:2], int))
                for layer, head in np.ndindex(right.shape):
                    row = words[layer, head, query]
                    right[layer, head] += max(others, key=lambda j: row[j]) == target
    return hits | totals


@pytest.fixture(scope="module")
def windows(quiet_transformers: None) -> list[TokenWindow]:
    """Return 50 sentences of both splits."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    found: list[TokenWindow] = []
    for number, document in enumerate(documents_of("en_ewt-ud-dev")):
        found += sentence_windows(document, tokenizer, 128, number % 2)[0]
    return found[:50]


@pytest.fixture(scope="module")
def weights(windows: list[TokenWindow]) -> list[Weights]:
    return dense(model_of("eager"), [window.text for window in windows])


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_real_sentences(windows: list[TokenWindow], weights: list[Weights], causal: bool) -> None:
    assert {window.split for window in windows} == {0, 1}
    tally = survey(model_of("sdpa"), Relations(causal), windows)
    expected = in_loops(windows, weights, causal)
    counted = {name: values for name, values in tally.sums.items() if "/offsets/" not in name}
    assert counted.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(counted[name], values), name
    totals = {name: int(x) for name, x in tally.sums.items() if "/total/" in name}
    assert sum(totals.values()) > (500 if causal else 1000)
    for name, total in totals.items():
        assert tally.sums[name.replace("/total/", "/offsets/")].sum() <= total
