"""Sums over parts of a corpus come together as if they had been one."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.atlas.examples import Example
from regard.atlas.tally import Tally

Added = tuple[str, int | None, list[int]]


def entries() -> st.SearchStrategy[list[Added]]:
    """Draw what is added: a name, a call or none, and whole numbers, whose sums are exact."""
    values = st.lists(st.integers(-1000, 1000), max_size=4)
    with_call = st.tuples(st.sampled_from(["a/b", "file"]), st.integers(0, 3), values)
    without = st.tuples(st.sampled_from(["c", "about"]), st.none(), values)
    return st.lists(with_call | without, max_size=12)


def in_loops(every: list[Added]) -> dict[str, dict[tuple[int, ...], int]]:
    """Sum number by number, by name and place."""
    sums: dict[str, dict[tuple[int, ...], int]] = {}
    for name, call, values in every:
        places = sums.setdefault(name, {})
        for number, value in enumerate(values):
            place = (number,) if call is None else (call, number)
            places[place] = places.get(place, 0) + value
    return sums


def tally_of(every: list[Added]) -> Tally:
    tally = Tally()
    for name, call, values in every:
        tally.add(name, np.array(values, dtype=np.int32), call=call)
    return tally


def assert_holds(tally: Tally, expected: dict[str, dict[tuple[int, ...], int]]) -> None:
    assert tally.sums.keys() == expected.keys()
    for name, places in expected.items():
        array = tally.sums[name]
        assert array.dtype == np.int64
        for place in np.ndindex(array.shape):
            assert array[place] == places.get(place, 0)
        assert all(all(i < n for i, n in zip(p, array.shape, strict=True)) for p in places)


@given(every=entries(), cut=st.integers(0, 12))
def test_parts_add_up_to_the_whole(every: list[Added], cut: int) -> None:
    expected = in_loops(every)
    assert_holds(tally_of(every), expected)
    for parts in ((every[:cut], every[cut:]), (every[cut:], every[:cut])):
        one, two = map(tally_of, parts)
        before = {name: array.copy() for name, array in two.sums.items()}
        one.merge(two)
        assert_holds(one, expected)
        # What was merged is left alone, now and later.
        for name in list(one.sums):
            one.sums[name] += 1
        assert all(np.array_equal(two.sums[name], array) for name, array in before.items())


@given(every=entries())
def test_bytes_bring_everything_back(every: list[Added]) -> None:
    tally = tally_of(every)
    tally.skipped.update({"not UTF-8": 3, "ümlaut / slash": 1})
    again = Tally.from_bytes(tally.to_bytes())
    assert_holds(again, in_loops(every))
    assert again.skipped == tally.skipped


def test_bytes_bring_modules_and_examples_back() -> None:
    tally = Tally()
    tally.modules = ["layers.0", "layers.1"]
    tally.examples.add(1, 2, Example(0.5, 0.75, "sea.txt", "Call me Ishmaël", 5, 7, 0, 4))
    again = Tally.from_bytes(tally.to_bytes())
    assert again.modules == tally.modules
    assert again.examples.rows() == tally.examples.rows()
    assert len(again.examples.rows()) == 1


def test_sums_are_float64_or_int64() -> None:
    tally = Tally()
    tally.add("share", np.array([0.1, 0.2], dtype=np.float32))
    tally.add("share", [1, 2])
    tally.add("rows", np.uint8(200))
    tally.add("rows", np.uint8(200))
    tally.add("right", np.array([True, False, True]))
    assert tally.sums["share"].dtype == np.float64
    assert tally.sums["share"].tolist() == [np.float32(0.1) + 1.0, np.float32(0.2) + 2.0]
    assert (tally.sums["rows"].dtype, int(tally.sums["rows"])) == (np.int64, 400)
    assert tally.sums["right"].tolist() == [1, 0, 1]
    tally.add("rows", 0.5)
    assert (tally.sums["rows"].dtype, float(tally.sums["rows"])) == (np.float64, 400.5)


def test_calls_have_rows_of_their_own() -> None:
    tally = Tally()
    tally.add("offsets", [[1, 2], [3, 4]], call=2)
    tally.add("offsets", [[10, 20, 30]], call=0)
    assert tally.sums["offsets"].tolist() == [
        [[10, 20, 30], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0]],
        [[1, 2, 0], [3, 4, 0]],
    ]


def test_skipped_is_merged() -> None:
    one, two = Tally(), Tally()
    one.skipped["empty"] = 2
    two.skipped.update({"empty": 1, "binary": 4})
    one.merge(two)
    assert one.skipped == Counter({"binary": 4, "empty": 3})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("values", "call", "message"),
    [
        (
            [1],
            None,
            "values of 'hits' must have 2 axes, got 1",
        ),
        ([1], -1, "call must be at least 0, got -1"),
        (["one"], 0, "values of 'hits' must be numbers, got <U3"),
        ([1j], 0, "values of 'hits' must be numbers, got complex128"),
    ],
)
def test_what_can_not_be_added(values: Any, call: int | None, message: str) -> None:
    tally = Tally()
    tally.add("hits", [1, 2], call=0)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        tally.add("hits", values, call=call)
    assert str(caught.value) == message
    assert tally.sums["hits"].tolist() == [[1, 2]]


def test_a_merge_that_fails_adds_nothing() -> None:
    one, two = Tally(), Tally()
    one.add("rows", 3)
    one.add("hits", [1])
    two.add("rows", 4)
    two.add("hits", [1], call=0)
    with pytest.raises(ValueError, match="values of 'hits' must have 1 axes, got 2"):
        one.merge(two)
    assert int(one.sums["rows"]) == 3


def test_a_file_holds_what_was_counted(tmp_path: Path) -> None:
    path = tmp_path / "shard-3.npz"
    tally = Tally()
    tally.add("relations/obj/hits", [2], call=1)
    path.write_bytes(tally.to_bytes())
    assert Tally.load(str(path)).sums["relations/obj/hits"].tolist() == [[0], [2]]


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    tally = Tally()
    tally.add("rows", np.arange(100))
    whole = tally.to_bytes()
    path = tmp_path / "shard.npz"
    middle = len(whole) // 2
    broken = bytearray(whole)
    broken[middle - 200 : middle + 200] = bytes(400)
    for data in (b"", b"text", whole[:-7], whole[:middle], bytes(broken)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"shard\.npz is damaged") as caught:
            Tally.load(path)
        assert "remove it, and count again" in str(caught.value)


def archive(**about: Any) -> bytes:
    """Return an archive that says something of itself."""
    file = io.BytesIO()
    facts = {"examples": [], "modules": [], **about}
    np.savez(file, about=np.array(json.dumps(facts)), sum0=np.zeros(3))
    return file.getvalue()


def test_a_later_version_is_said() -> None:
    data = archive(format="regard tally", version=2, names=["rows"], skipped={})
    with pytest.raises(
        ValueError, match="the tally has format version 2, and this Regard reads up to 1: upgrade"
    ):
        Tally.from_bytes(data)


def test_an_archive_that_is_one() -> None:
    data = archive(format="regard tally", version=1, names=["rows"], skipped={})
    assert Tally.from_bytes(data).sums["rows"].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    "about",
    [
        {"format": "regard recording", "version": 1, "names": [], "skipped": {}},
        {"format": "regard tally"},
        {"format": "regard tally", "version": "1", "names": [], "skipped": {}},
        {"format": "regard tally", "version": 1, "names": ["rows", "more"], "skipped": {}},
        {"format": "regard tally", "version": 1, "names": ["rows"], "skipped": {"empty": "two"}},
    ],
)
def test_another_archive_is_said(about: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the tally is damaged"):
        Tally.from_bytes(archive(**about))


def test_pickles_are_not_opened() -> None:
    file = io.BytesIO()
    np.savez(file, about=np.array([{"format": "regard tally"}], dtype=object))
    with pytest.raises(ValueError, match="the tally is damaged"):
        Tally.from_bytes(file.getvalue())


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Tally.load(tmp_path / "none.npz")
