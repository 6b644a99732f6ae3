"""What once could be done with a recording, a corpus or a published folder."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard import AttentionMatrix, causal
from regard.patterns import from_mask
from regard.recording import Recording, RecordingError, open, save
from regard.recording.digest import digests_without_sums
from regard.recording.files import SUMS
from tests.hostile import mutations
from tests.hostile.good import record
from tests.hostile.mutations import MUTATIONS, SECRET
from tests.hostile.seal import replace

pytestmark = pytest.mark.usefixtures("unchecked", "one_thread")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "good.regard"
    record(path)
    return path


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "copy.regard"))


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """End what hangs."""
    signal.alarm(120)
    yield
    signal.alarm(0)


def look(recording: Recording) -> None:
    for call in range(len(recording)):
        for level in range(recording.max_zoom(call) + 1):
            recording.tile(call, 0, level, 0, 0)
    assert recording.tokens, recording.texts[0].text


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("calls/0000/query of Zarr 2", "calls/0000/query must be uint16 of shape"),
        ("calls/0000/entropy nested gzip", "entropy is not written by Regard: its codecs is"),
        ("1000000 heads", "heads: Input should be less than or equal to 32768"),
        ("a million heads without measures", "heads: Input should be less than or equal to 32768"),
        ("400000000 tokens", "tokens: Input should be less than or equal to 2097152"),
        (
            "a mask of 60,000²",
            r"part_6 must be bool of 2 axes and at most 268,435,456 numbers, got bool",
        ),
        ("texts/0/tokens of [536870912, 0]", r"must be uint8 of 1 axis and at most 33,554,432 num"),
        ("calls/0000/part_7 of [300, 0]", r"must be int64 of 1 axis .* of shape \[300, 0\]"),
        ("calls/0000/part_2 of [2, 0]", r"must be .* of 1 axis .* of shape \[2, 0\]"),
        ("calls/0000/part_6 of shape [0, 1099511627776]", r"must be bool of 2 axes"),
        ("texts/0/text of shape [1, 1, 1, 1, 1, 1, 1", r"must be uint8 of 1 axis"),
        ("pattern of 2¹² members", "must be an object of at most 64 members"),
        ("call cells 0", r"cells must be \[2\], got \[0\]"),
        ("description null, unsealed", "it must be a Zarr 3 group"),
        ("description named twice, unsealed", "has a duplicate key"),
        ("zarr.json piped, unsealed", "must be a regular file"),
        ("zarr.json linked, unsealed", "it is a link, or below one"),
        ("root title Other, unsealed", "its digest does not match its content"),
    ],
)
def test_refused_when_it_is_opened(copy: Path, name: str, rule: str) -> None:
    MUTATIONS[name](copy)
    with pytest.raises(RecordingError, match=rule) as raised:
        open(copy)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("calls/0000/query_bomb", "must declare 16,384 bytes in .*, got 2,147,483,647"),
        ("calls/0000/query/c/0/0/0 piped, unsealed", "must be a regular file"),
        ("folder calls/0000/query linked, unsealed", "it is a link, or below one"),
        ("calls/0000/query/c/0/0/0 of /dev/zero, unsealed", "it is a link"),
    ],
)
def test_refused_when_it_is_read(copy: Path, name: str, rule: str) -> None:
    MUTATIONS[name](copy)
    with pytest.raises(RecordingError, match=rule) as raised:
        look(open(copy))
    assert len(str(raised.value).splitlines()) == 1


def test_a_link_serves_no_file_from_elsewhere(copy: Path) -> None:
    MUTATIONS["the text is a link to a chunk elsewhere"](copy)
    with pytest.raises(
        RecordingError, match="texts/0/text/c/0 must be a regular file: it is a link"
    ):
        assert SECRET.decode() not in open(copy).texts[0].text


SWAPPED = [name for name in MUTATIONS if " swapped with " in name and name.endswith("unsealed")]


@pytest.mark.parametrize("name", SWAPPED)
def test_swapped_chunks_are_noticed(copy: Path, name: str) -> None:
    MUTATIONS[name](copy)
    with pytest.raises(RecordingError, match=r"the SHA-256 of .* differs"):
        look_at_all(open(copy))


def look_at_all(recording: Recording) -> None:
    look(recording)
    for head in range(2):
        recording.tile(0, head, 0, 0, 0)
        recording.tile(0, head, 1, 0, 0)
        recording.line(0, head, "entropy", 0, 0)


def without_sums(path: Path) -> None:
    """Make a recording one that Regard 0.1 could have written."""
    for file in path.rglob(SUMS):
        file.unlink()
    data: dict[str, Any] = json.loads((path / "zarr.json").read_bytes())
    from regard.recording.schema import CallFacts, Facts

    facts = Facts.model_validate(mutations.facts(data))
    calls = [CallFacts.model_validate(mutations.facts(data, n)) for n in range(facts.calls)]
    mutations.facts(data)["digest"] = min(digests_without_sums(facts, calls))
    replace(path / "zarr.json", json.dumps(data).encode())


def test_a_recording_without_sums_is_read_as_it_was(good: Path, copy: Path) -> None:
    without_sums(copy)
    found, wanted = open(copy), open(good)
    for call in range(2):
        for level in range(2):
            tiles = [one.tile(call, "mean", level, 0, 0) for one in (found, wanted)]
            np.testing.assert_array_equal(*tiles)
    assert found.tokens == wanted.tokens


@pytest.mark.parametrize("array", ["part_6", "part_7", "positions", "query"])
@pytest.mark.parametrize("sums", [True, False])
def test_a_lost_chunk_is_no_zeros(copy: Path, array: str, sums: bool) -> None:
    """Only numbers of floating point have a NaN that stands for what is lost."""
    if not sums:
        without_sums(copy)
    mutations.chunks(copy, f"calls/0000/{array}")[0].unlink()
    with pytest.raises(RecordingError, match=f"calls/0000/{array} is damaged: .* is missing"):
        open(copy).tile(0, 0, 1, 0, 0)


@pytest.mark.parametrize("sums", [True, False])
def test_a_recording_that_was_written_anew_is_noticed(tmp_path: Path, sums: bool) -> None:
    x = torch.randn(1, 1, 600, 4)
    path = tmp_path / "it.regard"
    save(AttentionMatrix(x, x, pattern=causal()), path, tokens=["t"] * 600, progress=False)
    if not sums:
        without_sums(path)
    served = open(path)
    save(
        AttentionMatrix(2 * x, x, pattern=causal()),
        path,
        tokens=["t"] * 600,
        overwrite=True,
        progress=False,
    )
    with pytest.raises(RecordingError, match=r"(damaged|has changed).*open it again"):
        served.tile(0, 0, 0, 0, 0)


def test_a_pattern_that_would_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    x = torch.randn(1, 1, 8, 4)
    pattern = causal()
    for _ in range(40):
        pattern = pattern | ~from_mask(torch.rand(8, 8) < 0.5)
    with pytest.raises(ValueError, match="at most 64 members"):
        save(AttentionMatrix(x, x, pattern=pattern), tmp_path / "it.regard", tokens=["t"] * 8)


def test_a_search_from_beyond_the_end_finds_nothing(good: Path) -> None:
    recording = open(good)
    assert recording.search("word299", start=299) == ([(299, 299)], False)
    assert recording.search("word", start=300) == ([], False)
    assert recording.search("word", start=10**9) == ([], False)


def test_one_digest_is_served_once(good: Path, copy: Path) -> None:
    from regard.server.app import app

    with pytest.raises(ValueError, match="got copy twice"):
        app([open(good), open(copy)])


def test_a_pipe_is_no_publication(tmp_path: Path) -> None:
    from regard.server.publish import check_free

    os.mkfifo(tmp_path / "recordings.json")
    with pytest.raises(FileExistsError, match="is not empty"):
        check_free(tmp_path)


def test_a_corpus_has_no_pipes_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    from regard.atlas.units import find_units

    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("a")
    (corpus / "b.txt").symlink_to(corpus / "a.txt")
    os.mkfifo(tmp_path / "pipe")
    (corpus / "c.txt").symlink_to(tmp_path / "pipe")
    assert [unit.name for unit in find_units(corpus)] == ["a.txt", "b.txt"]
    (tmp_path / "secret").write_bytes(SECRET)
    (corpus / "d.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"d\.txt must be below .*links to .*secret"):
        find_units(corpus)
