"""Tables of what probes counted."""

from math import sqrt

import pytest

from regard.atlas.probes.scores import coreference_table, relations_table, wilson
from regard.atlas.tally import Tally


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_as_published(hits: int, total: int, low: float, high: float) -> None:
    assert tuple(round(bound, 4) for bound in wilson(hits, total)) == (low, high)


@pytest.mark.parametrize(("hits", "total"), [(1, 1), (0, 1), (3, 7), (7, 7), (990, 1000)])
def test_wilson_is_where_the_score_test_gives_way(hits: int, total: int) -> None:
    for bound in wilson(hits, total):
        off = abs(hits / total - bound)
        assert off == pytest.approx(1.959964 * sqrt(bound * (1 - bound) / total), abs=1e-6)
    low, high = wilson(hits, total)
    assert 0.0 <= low <= hits / total <= high <= 1.0


@pytest.mark.parametrize(("hits", "total"), [(0, 0), (3, 2), (-1, 2)])
def test_a_share_of_nothing(hits: int, total: int) -> None:
    message = f"^hits must be from 0 to total, and total above 0, got {hits} of {total}$"
    with pytest.raises(ValueError, match=message):
        wilson(hits, total)


def add_offsets(tally: Tally, split: int, **counts: int) -> None:
    values = [0] * 65
    for name, count in counts.items():
        values[32 + int(name.replace("back", "-").replace("ahead", ""))] = count
    tally.add(f"relations/obj/governor/offsets/{split}", values)


def test_relations() -> None:
    tally = Tally()
    tally.add("rows", 7)
    tally.add("relations/obj/governor/hits/0", [3, 9], call=0)
    tally.add("relations/obj/governor/hits/0", [5, 9], call=1)
    tally.add("relations/obj/governor/hits/1", [20, 30], call=0)
    tally.add("relations/obj/governor/hits/1", [40, 10], call=1)
    tally.add("relations/obj/governor/total/0", 10)
    tally.add("relations/obj/governor/total/1", 50)
    add_offsets(tally, 0, back1=4, back2=5, ahead2=5)
    add_offsets(tally, 1, back1=30, back2=15, ahead2=1)
    rows = relations_table(tally)
    assert [(row["layer"], row["head"], row["hits_choose"], row["hits"]) for row in rows] == [
        (0, 0, 3, 20),
        (0, 1, 9, 30),
        (1, 0, 5, 40),
        (1, 1, 9, 10),
    ]
    # Chosen on split 0, the first of equals, though another head is better on split 1.
    assert [row["best"] for row in rows] == [False, True, False, False]
    assert rows[1] == {
        "relation": "obj",
        "direction": "governor",
        "layer": 0,
        "head": 1,
        "hits_choose": 9,
        "total_choose": 10,
        "hits": 30,
        "total": 50,
        "score": 0.6,
        "low": wilson(30, 50)[0],
        "high": wilson(30, 50)[1],
        # The most frequent on split 0, the nearer and then the earlier one of equals.
        "offset": -2,
        "offset_score": 0.3,
        "best": True,
    }


def test_a_relation_that_only_one_split_has() -> None:
    tally = Tally()
    tally.add("relations/expl/dependent/hits/1", [1], call=0)
    tally.add("relations/expl/dependent/total/1", 4)
    tally.add("relations/expl/dependent/offsets/1", [0] * 65)
    (row,) = relations_table(tally)
    assert (row["hits_choose"], row["total_choose"], row["best"]) == (0, 0, False)
    assert (row["score"], row["offset"], row["offset_score"]) == (0.25, None, None)

    tally = Tally()
    tally.add("relations/expl/dependent/hits/0", [1, 2], call=1)
    tally.add("relations/expl/dependent/total/0", 4)
    tally.add("relations/expl/dependent/offsets/0", [1] + [0] * 64)
    rows = relations_table(tally)
    assert [row["best"] for row in rows] == [False, False, False, True]
    last = rows[-1]
    assert (last["hits"], last["total"], last["offset"]) == (0, 0, -32)
    assert all(last[name] is None for name in ("score", "low", "high", "offset_score"))


def test_coreference() -> None:
    tally = Tally()
    for split, total in ((0, 10), (1, 20)):
        tally.add(f"coreference/total/{split}", total)
        tally.add(f"coreference/nearest/{split}", total // 5)
        tally.add(f"coreference/same_head/{split}", total // 2)
        tally.add(f"coreference/hits/{split}", [1, 2, 3], call=0)
        tally.add(f"coreference/hits/{split}", [6, 5, 4], call=1)
    rows = coreference_table(tally)
    assert [(row["layer"], row["head"]) for row in rows if row["best"]] == [(1, 0)]
    assert rows[3]["score"] == 0.3
    assert {(row["nearest"], row["same_head"]) for row in rows} == {(0.2, 0.5)}


def test_nothing_was_counted() -> None:
    assert relations_table(Tally()) == []
    assert coreference_table(Tally()) == []
