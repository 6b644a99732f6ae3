"""Documents and their windows: what is read, and what is left out and counted."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import transformers

from materials import minilm
from regard.atlas import pretrained
from regard.atlas.documents import Document, documents
from regard.atlas.shard_windows import REPEATS, Settings, prepare
from regard.atlas.text_windows import repeated_windows, text_windows
from regard.atlas.units import Shard, find_units
from tests.atlas.surveying import annotated, book

Read = Callable[..., tuple[list[str], dict[str, int]]]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(minilm())


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write a file; return the texts in it, and what was left out."""

    def read(name: str, content: bytes, field: str | None = None) -> Any:
        (tmp_path / name).write_bytes(content)
        skipped: Counter[str] = Counter()
        texts = [
            document.text
            for unit in find_units(tmp_path / name)
            for document in documents(unit, skipped, field)
        ]
        return texts, dict(+skipped)

    return read


def parquet(table: dict[str, Any], **options: Any) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(table), sink, **options)
    return sink.getvalue().to_pybytes()


def test_a_text_is_one_document(read: Read) -> None:
    assert read("a.txt", "Ein Wörtchen.\n\nNoch eins.\n".encode()) == (
        ["Ein Wörtchen.\n\nNoch eins.\n"],
        {},
    )


def test_a_mark_of_the_encoding_is_no_text(read: Read) -> None:
    assert read("a.txt", b"\xef\xbb\xbfHello") == (["Hello"], {})
    assert read("a.jsonl", b'\xef\xbb\xbf{"text": "Hello"}') == (["Hello"], {})


@pytest.mark.parametrize("content", [b"", b"\n \t\n"])
def test_an_empty_text_is_counted(read: Read, content: bytes) -> None:
    assert read("a.txt", content) == ([], {"empty document": 1})


def test_bytes_that_are_no_utf_8_are_replaced_and_counted(read: Read) -> None:
    # One that is really meant is not counted.
    content = b"caf\xe9 and \xff\xfe and " + "\ufffd".encode()
    assert read("a.txt", content) == (
        ["caf\ufffd and \ufffd\ufffd and \ufffd"],
        {"characters that are no UTF-8": 3},
    )
    assert read("a.jsonl", b'{"text": "caf\xe9"}') == (
        ["caf\ufffd"],
        {"characters that are no UTF-8": 1},
    )


def test_halves_of_characters_are_replaced_and_counted(read: Read, tokenizer: Any) -> None:
    (text,), skipped = read("a.jsonl", rb'{"text": "half \ud83d, whole \ud83e\udd8a"}')
    assert text == "half \ufffd, whole 🦊"
    assert skipped == {"characters that are no UTF-8": 1}
    assert list(text_windows(Document("a", text), tokenizer, 16))


def test_records_that_are_wrong_are_counted_and_all_others_read(read: Read) -> None:
    lines = [
        '{"text": "one"}',
        '{"text": "broken',
        "",
        "no JSON at all",
        '{"title": "without text"}',
        '{"text": null}',
        '{"text": 7}',
        "[1, 2]",
        "12",
        '{"text": "  "}',
        "[" * 100_000,
        '"a text alone"',
        '{"text": "two", "content": "not this"}',
    ]
    texts, skipped = read("a.jsonl", "\r\n".join(lines).encode())
    assert texts == ["one", "a text alone", "two"]
    assert skipped == {
        "line that is no JSON": 3,
        "record without text": 5,
        "empty document": 1,
    }


def test_the_text_is_in_the_usual_fields_or_in_that_which_is_named(read: Read) -> None:
    lines = [{"body": "b", "content": "c"}, {"body": "b"}, {"other": "o", "text": "t"}]
    content = "\n".join(map(json.dumps, lines)).encode()
    assert read("a.jsonl", content) == (["c", "b", "t"], {})
    assert read("a.jsonl", content, "other") == (["o"], {"record without text": 2})


def test_every_row_group_of_parquet_is_read(read: Read) -> None:
    texts = [f"text {number}" for number in range(10)] + [None, " "]
    content = parquet({"number": range(12), "text": texts}, row_group_size=5)
    found, skipped = read("a.parquet", content)
    assert found == texts[:10]
    assert skipped == {"record without text": 1, "empty document": 1}
    assert read("a.parquet", content, "number") == ([], {"record without text": 12})
    assert read("a.parquet", parquet({"text": pyarrow.array([], "string")})) == ([], {})


def test_parquet_without_text_says_which_columns_were_looked_for(read: Read) -> None:
    _, skipped = read("a.parquet", parquet({"words": ["a"]}))
    assert skipped == {"unreadable: a.parquet (no column text or content or body: pass field)": 1}
    assert read("a.parquet", parquet({"words": ["a"]}), "words") == (["a"], {})


def test_damaged_parquet_is_counted(read: Read) -> None:
    good = parquet({"text": ["some words " * 50] * 40}, compression="zstd")
    for content in (b"", b"PAR1", good[:-40], good[:4] + b"\xff" * 200 + good[204:]):
        texts, skipped = read("a.parquet", content)
        assert texts == []
        ((reason, count),) = skipped.items()
        assert reason.startswith("unreadable: a.parquet (")
        assert count == 1


def test_files_that_vanish_are_counted(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").write_text("a", encoding="utf-8")
    (tmp_path / "folder.txt").write_text("a", encoding="utf-8")
    (tmp_path / "nowhere.txt").symlink_to(tmp_path / "absent")
    units = find_units(tmp_path)
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "folder.txt").unlink()
    (tmp_path / "folder.txt").mkdir()
    skipped: Counter[str] = Counter()
    assert [found for unit in units for found in documents(unit, skipped)] == []
    assert sorted(reason.partition(" (")[0] for reason in skipped) == [
        "unreadable: folder.txt",
        "unreadable: gone.txt",
        "unreadable: nowhere.txt",
    ]


def test_malformed_sentences_are_counted_and_all_others_read(tmp_path: Path) -> None:
    good = annotated("en_ewt-ud-dev", 3)
    blocks = good.strip().split("\n\n")
    lines = blocks[1].split("\n")
    lines[-1] = "only\tthree\tfields"
    (tmp_path / "a.conllu").write_text("\n\n".join([blocks[0], "\n".join(lines), blocks[2]]) + "\n")
    skipped: Counter[str] = Counter()
    (unit,) = find_units(tmp_path)
    found = [len(document.sentences) for document in documents(unit, skipped)]
    assert sum(found) == 2
    assert +skipped == {"malformed sentence": 1}


@pytest.mark.parametrize("length", [8, 31, 512])
def test_windows_have_all_tokens_of_a_document_once(tokenizer: Any, length: int) -> None:
    text = "  \n" + book(50_000, 3_000) + " \n"
    windows = list(text_windows(Document("a#0:0", text), tokenizer, length))
    inside = [
        token
        for window in windows
        for token, special in zip(window.ids, window.special, strict=True)
        if not special
    ]
    assert inside == tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    assert [window.name for window in windows] == [f"a#0:0/{n}" for n in range(len(windows))]
    for window in windows:
        assert len(window.ids) <= length
        assert window.special == (True, *(False,) * (len(window.ids) - 2), True)
        assert len(window.ids) == length or window is windows[-1]
        for token, (start, stop), special in zip(
            window.ids, window.offsets, window.special, strict=True
        ):
            written = tokenizer.convert_ids_to_tokens(token).removeprefix("##")
            assert special or window.text[start:stop].lower() == written
            assert not special or (start, stop) == (0, 0)


def test_repeats_are_tokens_that_differ_then_the_same_again(tokenizer: Any) -> None:
    windows = list(repeated_windows(tokenizer, 512, seed=3))
    assert windows == list(repeated_windows(tokenizer, 512, seed=3))
    assert windows != list(repeated_windows(tokenizer, 512, seed=4))
    for window in windows:
        first, *inside, last = window.ids
        assert (first, last) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        half = len(inside) // 2
        assert inside[:half] == inside[half:]
        assert len(set(inside)) == half == 128
        assert not set(inside) & set(tokenizer.all_special_ids)
        assert window.special == (True, *(False,) * 256, True)
    assert {len(window.ids) for window in repeated_windows(tokenizer, 21, 0)} == {20}


def test_a_shard_says_what_it_read_and_what_not(tmp_path: Path, tokenizer: Any) -> None:
    (tmp_path / "a.txt").write_text(book(50_000, 3_000), encoding="utf-8")
    (tmp_path / "b.txt").write_text("short", encoding="utf-8")
    # Characters that the tokenizer throws away.
    (tmp_path / "c.txt").write_text("\u0001\u200b", encoding="utf-8")
    (tmp_path / "d.txt").write_text("", encoding="utf-8")
    shard = Shard(0, (*find_units(tmp_path), REPEATS))
    windows, tally = prepare(shard, tokenizer, Settings(length=64))
    assert Counter(window.kind for window in windows) == {"text": len(windows) - 8, "repeats": 8}
    assert {name: int(count) for name, count in tally.sums.items()} == {
        "documents": 3,
        "documents_cut": 1,
    }
    assert tally.skipped == {"document without tokens": 1, "empty document": 1}


def test_a_sample_depends_on_names_and_the_seed_alone() -> None:
    names = [f"some/file{number}.txt#{number % 7}:0" for number in range(4_000)]

    def drawn(sample: float, seed: int) -> list[str]:
        settings = Settings(length=64, sample=sample, seed=seed)
        return [name for name in names if settings.wants(name)]

    assert drawn(1.0, 0) == names
    quarter = drawn(0.25, 1)
    assert quarter == drawn(0.25, 1) != drawn(0.25, 2)
    # Within four standard deviations.
    assert abs(len(quarter) - 1_000) < 4 * np.sqrt(4_000 * 0.25 * 0.75)
    # A larger sample has all of a smaller one.
    assert set(quarter) < set(drawn(0.5, 1))


def test_a_model_is_told_apart_from_another_in_a_folder_of_that_name(tmp_path: Path) -> None:
    stamps: set[str] = set()
    for place in ("a", "b"):
        folder = tmp_path / place / "model"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(place.encode() * (3 if place == "a" else 4))
        loader = pretrained(str(folder))
        assert loader.name == "model"
        stamps.add(loader.stamp)
    assert len(stamps) == 2


def test_a_name_on_the_hub_is_told_apart_by_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--some--model"
    (cached / "refs").mkdir(parents=True)
    for commit in ("a" * 40, "b" * 40):
        (cached / "refs" / "main").write_text(commit)
        (cached / "snapshots" / commit).mkdir(parents=True)
        (cached / "snapshots" / commit / "config.json").write_text('{"model_type": "bert"}')
        loader = pretrained("some/model")
        assert (loader.name, loader.stamp) == ("some/model", f"torch.float32 {commit}")
