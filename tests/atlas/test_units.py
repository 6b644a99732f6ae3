"""A corpus cut into units: everything once, whatever is in it and wherever it is."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.atlas import documents as documents_module
from regard.atlas import units as units_module
from regard.atlas.documents import documents, stretch
from regard.atlas.units import UNKNOWN, Shard, Unit, find_units, into_shards

MEMORY: Any = fsspec.filesystem("memory")

# What boundaries are made of, and what may stand in their way.
PIECES = [b"\n", b"\n\n", b" ", b"\r\n", b"# newdoc", b"# newdoc id = a\n", b"a", b"word"]
PIECES += ["é".encode(), "狗".encode(), "🦊".encode(), b"\x80", b"\xff"]
contents = st.lists(st.sampled_from(PIECES) | st.binary(max_size=9), max_size=60).map(b"".join)
unit_sizes = st.integers(4, 40)


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    MEMORY.store.clear()
    MEMORY.pseudo_dirs[:] = [""]
    yield
    MEMORY.store.clear()


def units_of(name: str, content: bytes, size: int, patch: pytest.MonkeyPatch) -> list[Unit]:
    """Write a file to memory, and return its units of about so many bytes."""
    for module in (units_module, documents_module):
        patch.setattr(module, "UNIT", size)
    MEMORY.pipe(f"/corpus/{name}", content)
    return find_units(f"memory://corpus/{name}")


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "conllu"])
@given(content=contents, size=unit_sizes)
def test_units_together_are_the_file(suffix: str, content: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = units_of(f"a.{suffix}", content, size, patch)
        assert len(found) == max(1, -(-len(content) // size))
        assert b"".join(map(stretch, found)) == content


def test_a_large_file_has_larger_units_and_no_more_of_them(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(2**30)
    found = find_units(path)
    assert len(found) == 256
    assert stretch(found[3]) == bytes(2**22)


@given(content=contents, size=unit_sizes)
def test_a_text_is_cut_at_the_widest_gap_nearby(content: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        pieces = [stretch(unit) for unit in units_of("a.txt", content, size, patch)]
        # Whatever is in it, no unit is much larger than the others.
        assert max(map(len, pieces)) <= 2 * size
        end = 0
        for number, piece in enumerate(pieces[:-1]):
            end += len(piece)
            place = (number + 1) * size
            assert place <= end <= place + size
            # Ends of gaps in reach: of the widest kind that is there, the first.
            reach = range(place, min(place + size, len(content)) + 1)
            for gap in (b"\n\n", b"\n", b" "):
                ends = [i for i in reach if content[:i].endswith(gap)]
                if ends:
                    assert end == ends[0]
                    break


@given(st.text("狗猫鳥🦊é", max_size=80), unit_sizes)
def test_a_text_without_any_gap_is_cut_between_characters(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        pieces = [stretch(unit) for unit in units_of("a.txt", text.encode(), size, patch)]
        assert "".join(piece.decode("utf-8") for piece in pieces) == text


@given(
    st.lists(st.text(max_size=30) | st.integers() | st.none(), max_size=20),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
    unit_sizes,
)
def test_each_json_record_is_read_once(
    records: list[Any], end: str, ended: bool, size: int
) -> None:
    lines = [json.dumps({"text": record}, ensure_ascii=False) for record in records]
    content = end.join(lines) + (end if ended else "")
    with pytest.MonkeyPatch.context() as patch:
        skipped: Counter[str] = Counter()
        found = [
            (document.name, document.text)
            for unit in units_of("a.jsonl", content.encode("utf-8"), size, patch)
            for document in documents(unit, skipped)
        ]
    texts = [record for record in records if isinstance(record, str)]
    assert [text for _, text in found] == [text for text in texts if text.strip()]
    assert skipped["record without text"] == len(records) - len(texts)
    assert skipped["empty document"] == sum(not text.strip() for text in texts)
    assert skipped["line that is no JSON"] == 0
    # Each has a name of its own.
    assert len({name for name, _ in found}) == len(found)


WORD = "{}\t{}\t_\tNOUN\t_\t_\t{}\tdep\t_\t_\n"


def conllu(documents: list[list[int]], *, named: bool) -> str:
    """Return sentences of so many words in CoNLL-U. Each form tells document, sentence and word."""
    blocks: list[str] = []
    for number, lengths in enumerate(documents):
        for place, length in enumerate(lengths):
            head = f"# newdoc id = d{number}\n" if named and place == 0 else ""
            words = [
                WORD.format(i + 1, f"d{number}s{place}w{i}", int(i == 1)) for i in range(length)
            ]
            blocks.append(head + f"# text = {number} {place}\n" + "".join(words))
    return "\n".join(blocks) + "\n"


@pytest.mark.parametrize("named", [True, False])
@given(
    lengths=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=6),
    size=st.integers(24, 200),
)
def test_each_sentence_is_read_once(named: bool, lengths: list[list[int]], size: int) -> None:
    content = conllu(lengths, named=named).encode()
    with pytest.MonkeyPatch.context() as patch:
        skipped: Counter[str] = Counter()
        found = [
            document
            for unit in units_of("a.conllu", content, size, patch)
            for document in documents(unit, skipped)
        ]
    assert not +skipped
    read: list[list[str]] = [
        [word.form for word in sentence.words]
        for document in found
        for sentence in document.sentences
    ]
    expected = [
        [f"d{number}s{place}w{i}" for i in range(length)]
        for number, all_lengths in enumerate(lengths)
        for place, length in enumerate(all_lengths)
    ]
    assert read == expected
    if named:
        # A document that is said to be one is never cut.
        assert [document.name.rpartition(":")[2] for document in found] == [
            f"d{number}" for number in range(len(lengths))
        ]


def test_a_file_of_unknown_size_is_read_whole() -> None:
    MEMORY.pipe("/corpus/a.txt", b"some words " * 20_000)
    unit = Unit("memory://corpus/a.txt", "a.txt", "text", 0, UNKNOWN, "")
    assert stretch(unit) == b"some words " * 20_000


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    for name in ("b.txt", "a.jsonl", "deep/er/c.MD", "deep/d.text", "notes.pdf", "deep/e.ndjson"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f'{{"text": "{name}"}}', encoding="utf-8")
    (folder / "folder.txt").mkdir()
    return folder


ALL = ["a.jsonl", "b.txt", "deep/d.text", "deep/e.ndjson", "deep/er/c.MD"]


def test_a_folder_is_read_with_all_that_is_in_it(corpus: Path) -> None:
    for source in (corpus, str(corpus), f"{corpus}/", f"file://{corpus}"):
        found = find_units(source)
        assert [unit.name for unit in found] == ALL
        assert [unit.id for unit in found] == [f"{name}#0" for name in ALL]
        assert [unit.kind for unit in found] == ["json lines", "text", "text", "json lines", "text"]


def test_a_relative_path_means_the_same_file(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    assert find_units("corpus") == find_units(corpus)
    assert find_units("corpus/b.txt") == find_units(corpus / "b.txt")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.txt", ["b.txt"]),
        ("*", ["a.jsonl", "b.txt"]),
        ("deep/*", ["d.text", "e.ndjson"]),
        ("*/*.text", ["deep/d.text"]),
        ("**", ALL),
    ],
)
def test_a_pattern_is_read_in_the_order_of_names(
    corpus: Path, pattern: str, names: list[str]
) -> None:
    for source in (f"{corpus}/{pattern}", f"file://{corpus}/{pattern}"):
        assert [unit.name for unit in find_units(source)] == names


def test_urls_of_memory_are_read_like_folders() -> None:
    for name in ("x/b.txt", "x/a.txt", "x/y/c.jsonl"):
        MEMORY.pipe(f"/{name}", name.encode())
    assert [unit.name for unit in find_units("memory://x")] == ["a.txt", "b.txt", "y/c.jsonl"]
    assert [unit.name for unit in find_units("memory://x/*.txt")] == ["a.txt", "b.txt"]
    (only,) = find_units("memory://x/b.txt")
    assert (only.name, stretch(only)) == ("b.txt", b"x/b.txt")


def test_pipes_and_folders_are_no_files_but_links_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "real.txt").write_text("real", encoding="utf-8")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    found = find_units(f"{tmp_path}/*.txt")
    assert [unit.name for unit in found] == ["link.txt", "real.txt"]
    assert [stretch(unit) for unit in found] == [b"real", b"real"]


def test_what_a_survey_writes_is_not_read(corpus: Path) -> None:
    out = corpus / "deep"
    assert [unit.name for unit in find_units(corpus, out)] == ["a.jsonl", "b.txt"]
    # Nothing else is left out with it.
    assert [unit.name for unit in find_units(corpus, corpus / "dee")] == ALL


def test_a_source_without_anything_to_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent does not exist: pass a file"):
        find_units(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="does not exist: pass"):
        find_units(tmp_path)
    (tmp_path / "picture.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"must have files with one of the suffixes \.txt"):
        find_units(tmp_path)


@given(st.integers(1, 40), st.integers(1, 50) | st.none())
def test_shards_are_units_in_their_order(count: int, shards: int | None) -> None:
    units = [Unit(f"file:///{i}", f"{i}", "text", 0, 1, "") for i in range(count)]
    found = into_shards(units, shards)
    assert [unit for shard in found for unit in shard.units] == units
    assert [shard.number for shard in found] == list(range(len(found)))
    assert len(found) == (-(-count // 4) if shards is None else min(shards, count))
    sizes = [len(shard.units) for shard in found]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert len({shard.id for shard in found}) == len(found)


def test_shards_are_at_least_one() -> None:
    with pytest.raises(ValueError, match="shards must be at least 1, got 0"):
        into_shards([], 0)


def test_a_shard_is_called_otherwise_once_its_files_change(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one", encoding="utf-8")
    before = Shard(0, tuple(find_units(path)))
    assert Shard(0, tuple(find_units(path))).id == before.id
    path.write_text("two", encoding="utf-8")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))
    same_size = Shard(0, tuple(find_units(path)))
    path.write_text("three", encoding="utf-8")
    larger = Shard(0, tuple(find_units(path)))
    assert len({before.id, same_size.id, larger.id}) == 3
