"""The probe of coreference against its definition in loops, and by hand."""

from typing import Any

import numpy as np
import pytest
import transformers

from materials import minilm
from regard.atlas.annotated_windows import mention_windows
from regard.atlas.probes import Coreference
from regard.atlas.tally import Tally
from regard.atlas.window import Mention, Notes, TokenWindow
from tests.atlas.probing import Weights, dense, documents_of, made, model_of, survey, word_weights


def notes(forms: str, *mentions: Mention) -> Notes:
    words = tuple(forms.split())
    return Notes(words, (-1,) * len(words), ("dep",) * len(words), mentions)


# Anna met the old cat and it saw her.
ANNA = notes(
    "Anna met the old cat and it saw her",
    Mention("anna", 0, 0, 0),
    Mention("cat", 2, 4, 4),
    Mention("cat", 6, 6, 6),
    Mention("anna", 8, 8, 8),
)


def scored(window: TokenWindow, weights: dict[tuple[int, int], float]) -> dict[str, Any]:
    """Score one head, whose weights between words are given, and 0.01 elsewhere."""
    probe, tally = Coreference(), Tally()
    words = np.full((len(window.words),) * 2, 0.01)
    for place, weight in weights.items():
        words[place] = weight
    groups = probe.groups([window])
    found = groups.queries.numpy() @ words @ groups.keys.numpy().swapaxes(1, 2)
    probe.score([window], found[:, None], 0, tally)
    probe.count([window], tally)
    return {name.removeprefix("coreference/"): x.tolist() for name, x in tally.sums.items()}


def test_groups_are_the_heads_of_mentions() -> None:
    groups = Coreference().groups([made(ANNA, "mentions")])
    assert groups.queries[0].argmax(dim=1).tolist() == [0, 4, 6, 8]
    assert groups.keys.sum() == 4


def test_a_sentence_by_hand() -> None:
    window = made(ANNA, "mentions", split=1)
    # "it" looks at "saw" most, but of what was mentioned at the cat; "her" at "it".
    weights = {(6, 7): 0.8, (6, 4): 0.1, (8, 6): 0.5, (8, 0): 0.2}
    assert scored(window, weights) == {
        "hits/1": [[1]],
        "total/1": 2,
        "nearest/1": 1,
        "same_head/1": 1,
    }
    assert scored(window, weights | {(8, 0): 0.6})["hits/1"] == [[2]]
    # What comes later is no candidate.
    assert scored(window, weights | {(6, 8): 0.9})["hits/1"] == [[1]]


def test_a_head_that_looks_at_no_mention_knows_none() -> None:
    window = made(ANNA, "mentions")
    nothing = {(i, j): 0.0 for i in range(9) for j in range(9)}
    assert scored(window, nothing)["hits/0"] == [[0]]


def test_the_same_word_in_capitals_or_not() -> None:
    window = made(
        notes(
            "Cats like dogs but cats",
            Mention("1", 0, 0, 0),
            Mention("2", 2, 2, 2),
            Mention("1", 4, 4, 4),
        ),
        "mentions",
    )
    found = scored(window, {})
    assert (found["total/0"], found["nearest/0"], found["same_head/0"]) == (1, 0, 1)


def test_mentions_with_the_same_head_are_no_antecedents_of_each_other() -> None:
    # An entity within itself, and one that shares its head with another.
    window = made(
        notes("old Rome fell", Mention("1", 0, 1, 1), Mention("1", 1, 1, 1), Mention("2", 1, 1, 1)),
        "mentions",
    )
    assert scored(window, {}) == {}


def test_a_word_that_is_the_head_of_two_mentions_is_right_for_both() -> None:
    window = made(
        notes(
            "Rome fell it they",
            Mention("1", 0, 0, 0),
            Mention("2", 0, 0, 0),
            Mention("1", 2, 2, 2),
            Mention("2", 3, 3, 3),
        ),
        "mentions",
    )
    assert scored(window, {(3, 0): 0.5, (3, 2): 0.4}) == {
        "hits/0": [[2]],
        "total/0": 2,
        "nearest/0": 1,
        "same_head/0": 1,
    }


def in_loops(windows: list[TokenWindow], every: list[Weights]) -> dict[str, Any]:
    """Count mention by mention and head by head."""
    found: dict[str, Any] = {}
    for window, weights in zip(windows, every, strict=True):
        assert window.notes is not None
        words, forms = word_weights(window, weights), window.notes.forms
        for mention in window.notes.mentions:
            before = [one for one in window.notes.mentions if one.head < mention.head]
            true = [one.head for one in before if one.entity == mention.entity]
            if not true:
                continue
            nearest = max(before, key=lambda one: one.head)
            alike = [
                one for one in before if forms[one.head].lower() == forms[mention.head].lower()
            ]
            guess = max(alike, key=lambda one: one.head) if alike else nearest
            for name, number in (
                ("total", 1),
                ("nearest", nearest.head in true),
                ("same_head", guess.head in true),
            ):
                name = f"coreference/{name}/{window.split}"
                found[name] = found.get(name, 0) + number
            name = f"coreference/hits/{window.split}"
            hits = found.setdefault(name, np.zeros(weights.shape[:2], int))
            for layer, head in np.ndindex(hits.shape):
                row = words[layer, head, mention.head]
                hits[layer, head] += max(before, key=lambda one: row[one.head]).head in true
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("quiet_transformers")
def test_real_documents() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    windows: list[TokenWindow] = []
    for number, document in enumerate(documents_of("en_gum-ud-dev")[:4]):
        windows += mention_windows(document, tokenizer, 96, number % 2)[0][:5]
    weights = dense(model_of("eager"), [window.text for window in windows])
    tally = survey(model_of("sdpa"), Coreference(), windows)
    expected = in_loops(windows, weights)
    assert tally.sums.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(tally.sums[name], values), name
    assert sum(int(tally.sums[f"coreference/total/{split}"]) for split in (0, 1)) > 50
