"""Annotated text is read as people noted it, whatever else is in the file."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from materials import minilm, smollm2, treebank
from regard.atlas.annotated import AnnotatedDocument, Sentence, Word, read
from regard.atlas.annotated_windows import mention_windows, sentence_windows
from regard.atlas.window import Mention


def line(number: str, form: str, head: str = "0", relation: str = "root", misc: str = "_") -> str:
    """Return a line of CoNLL-U."""
    return "\t".join([number, form, "_", "_", "_", "_", head, relation, "_", misc])


def block(*lines: str) -> str:
    return "\n".join(lines) + "\n\n"


CATS = block(
    "# newdoc id = cats",
    "# text = Cats don't sleep.",
    line("1", "Cats", "4", "nsubj", "Entity=(1-animal-new-1-sgl)"),
    line("2-3", "don't", "_", "_"),
    line("2", "do", "4", "aux"),
    line("3", "n't", "4", "advmod:neg"),
    line("4", "sleep", "0", "root", "SpaceAfter=No"),
    line("4.1", "sleep", "_", "_"),
    line("5", ".", "4", "punct"),
)
DOG = block(
    line("1", "The", "2", "det", "Entity=(2-animal-new"),
    line("2", "dog", "4", "nsubj", "Entity=2)"),
    line("3-4", "won't", "_", "_"),
    line("3", "will", "4", "aux"),
    line("4", "not", "0", "root"),
)


def test_a_sentence_by_hand() -> None:
    (document,), skipped = read(CATS)
    assert not skipped
    assert document == AnnotatedDocument(
        "cats",
        (
            Sentence(
                "Cats don't sleep.",
                (
                    Word("Cats", 0, 4, 3, "nsubj"),
                    Word("do", 5, 7, 3, "aux"),
                    Word("n't", 7, 10, 3, "advmod:neg"),
                    Word("sleep", 11, 16, -1, "root"),
                    Word(".", 16, 17, 3, "punct"),
                ),
                (Mention("1", 0, 0, 0),),
            ),
        ),
    )


def test_words_whose_forms_do_not_spell_what_is_written_share_it() -> None:
    (document,), _ = read(DOG)
    (sentence,) = document.sentences
    assert document.name == "document 0"
    assert sentence.text == "The dog won't"
    assert [(word.start, word.end) for word in sentence.words] == [(0, 3), (4, 7), (8, 13), (8, 13)]
    assert sentence.mentions == (Mention("2", 0, 1, 1),)


@pytest.mark.parametrize(
    "wrong",
    [
        line("1", "Cats", "x"),
        line("1", "Cats", "2"),
        line("1", "Cats", "1"),
        line("1", "Cats", "_"),
        line("1", "Cats", "-1"),
        line("2", "Cats"),
        line("one", "Cats"),
        line("1", ""),
        line("1", "two  spaces"),
        line("1", "Cats") + "\tmore",
        line("1", "Cats") + "\n" + line("1", "Cats"),
        line("1-2", "Cats", "_", "_") + "\n" + line("1", "Cats"),
        line("1", "Cats").replace("\t", " "),
        "just text",
        line("1.1", "Cats", "_", "_"),
    ],
)
def test_a_malformed_sentence_leaves_the_others(wrong: str) -> None:
    documents, skipped = read(CATS + block("# newdoc id = dogs", wrong) + DOG)
    assert skipped == Counter({"malformed sentence": 1})
    assert [(one.name, len(one.sentences)) for one in documents] == [("cats", 1), ("dogs", 1)]


LONG = 40_000


@pytest.mark.parametrize(
    "hostile",
    [
        "# newdoc" + " " * LONG + "x",
        "# newdoc id =" + " " * LONG + "x",
        "#" + " " * LONG,
        line("1", "a", misc="Entity=" + "(" * LONG),
        line("1", "a", misc="Entity=" + "a" * LONG + "("),
        line("1", "a", misc="Entity=" + "(1" * LONG + "2)" * LONG),
        line("1" * LONG, "a"),
        line("1", "a", head="1" * LONG),
    ],
    ids=range(8),
)
def test_hostile_lines_take_no_longer_than_others(hostile: str) -> None:
    """Twice the line takes about twice the time: a quadratic one would take some ten seconds."""
    start = time.process_time()
    read("x" * 20 * LONG)
    read(block(*[line(str(number), "a", str(number - 1)) for number in range(1, 2_000)]))
    usual = time.process_time() - start
    start = time.process_time()
    found, _ = read(CATS + block(hostile) + CATS)
    assert time.process_time() - start < 20 * usual
    assert [sentence.text for document in found for sentence in document.sentences].count(
        "Cats don't sleep."
    ) == 2


def test_documents_begin_where_it_is_said() -> None:
    text = DOG + "# newdoc\n" + DOG + "# newdoc id = third\n# a comment\n\n" + DOG + DOG
    documents, skipped = read("\ufeff" + text.replace("\n", "\r\n"))
    assert not skipped
    named = [(one.name, len(one.sentences)) for one in documents]
    assert named == [("document 0", 1), ("document 1", 1), ("third", 2)]


@pytest.mark.parametrize("text", ["", "\n\n\n", "# newdoc id = none\n\n"])
def test_nothing_to_read(text: str) -> None:
    assert read(text) == ([], Counter())


def mentions(*brackets: str, heads: tuple[int, ...]) -> tuple[tuple[Mention, ...], Counter[str]]:
    """Return the mentions of a sentence, a word for each of the brackets, and what was skipped."""
    lines = [
        line(str(number), "word", str(head), "dep", f"Entity={one}" if one else "_")
        for number, (one, head) in enumerate(zip(brackets, heads, strict=True), start=1)
    ]
    (document,), skipped = read(block(*lines))
    return document.sentences[0].mentions, skipped


def test_nested_mentions() -> None:
    # As in GUM: "the [L2] grammar", within a longer one of the same entity.
    found, skipped = mentions(
        "(7-abstract(3-abstract)", "", "(7-thing", "7)(9-a)", "7)", heads=(2, 0, 5, 5, 2)
    )
    assert not skipped
    # By their heads: the second word, which the root governs, and the third, of the inner one.
    assert found == (
        Mention("3", 0, 0, 0),
        Mention("7", 0, 4, 1),
        Mention("7", 2, 3, 2),
        Mention("9", 3, 3, 3),
    )


def test_mentions_that_are_not_whole_are_counted() -> None:
    found, skipped = mentions(
        "(1[1/2]-a", "1[1/2])(2-b", "3)", "(1[2/2]-a)", "(4-d)", heads=(0, 1, 1, 1, 1)
    )
    assert found == (Mention("4", 4, 4, 4),)
    assert skipped == Counter(
        {
            "mention in several parts": 1,
            "mention without an end in its sentence": 1,
            "mention without a beginning in its sentence": 1,
        }
    )


def raw(path: Path) -> list[list[list[str]]]:
    """Return the fields of all lines of syntactic words, sentence by sentence, plainly."""
    sentences: list[list[list[str]]] = []
    for part in path.read_text(encoding="utf-8").strip("\n").split("\n\n"):
        rows = [one.split("\t") for one in part.split("\n") if not one.startswith("#")]
        sentences.append([row for row in rows if row[0].isdecimal()])
    return sentences


def texts(path: Path) -> list[str]:
    start = "# text = "
    lines = path.read_text(encoding="utf-8").split("\n")
    return [one.removeprefix(start).replace("\xa0", " ") for one in lines if one.startswith(start)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["en_ewt-ud-dev", "en_ewt-ud-test", "en_gum-ud-dev"])
def test_a_treebank_is_read_as_it_is(name: str) -> None:
    path = treebank() / f"{name}.conllu"
    documents, skipped = read(path.read_text(encoding="utf-8"))
    sentences = [sentence for document in documents for sentence in document.sentences]
    assert not skipped
    assert [sentence.text for sentence in sentences] == texts(path)
    for sentence, rows in zip(sentences, raw(path), strict=True):
        assert [(word.form, str(word.governor + 1), word.relation) for word in sentence.words] == [
            (row[1], row[6], row[7]) for row in rows
        ]
    assert len(documents) == path.read_text(encoding="utf-8").count("# newdoc")
    # A bracket opens each mention.
    notes = [note for rows in raw(path) for row in rows for note in row[9].split("|")]
    opened = sum(note.count("(") for note in notes if note.startswith("Entity="))
    assert sum(len(sentence.mentions) for sentence in sentences) == opened


@pytest.fixture(scope="module", params=[minilm, smollm2], ids=["minilm", "smollm2"])
def tokenizer(request: pytest.FixtureRequest, quiet_transformers: None) -> Any:
    folder: Callable[[], Path] = request.param
    return transformers.AutoTokenizer.from_pretrained(folder())


def slow_words(words: list[tuple[int, int]], offsets: Any, special: Any) -> list[tuple[int, int]]:
    """Return tokens of words by comparing every word with every token."""
    found: list[tuple[int, int]] = []
    for start, end in words:
        mine = [
            number
            for number, (first, last) in enumerate(offsets)
            if not special[number] and max(first, start) < min(last, end)
        ]
        assert mine == list(range(mine[0], mine[-1] + 1))
        found.append((mine[0], mine[-1] + 1))
    return found


@pytest.mark.slow
def test_sentences_as_windows(tokenizer: Any) -> None:
    documents, _ = read((treebank() / "en_ewt-ud-test.conllu").read_text(encoding="utf-8"))
    number_of_windows, too_long = 0, 0
    for document in documents[:40]:
        windows, skipped = sentence_windows(document, tokenizer, 40, split=1)
        number_of_windows += len(windows)
        too_long += skipped.pop("sentence longer than the window", 0)
        assert not skipped
        for window in windows:
            sentence = document.sentences[int(window.name.removeprefix(f"{document.name}/"))]
            assert (window.kind, window.split, window.text) == ("sentence", 1, sentence.text)
            assert list(window.ids) == tokenizer(sentence.text)["input_ids"]
            assert len(window.ids) == len(window.offsets) == len(window.special) <= 40
            spans = [(word.start, word.end) for word in sentence.words]
            assert list(window.words) == slow_words(spans, window.offsets, window.special)
            assert window.notes is not None
            assert window.notes.forms == tuple(word.form for word in sentence.words)
            assert window.notes.governors == tuple(word.governor for word in sentence.words)
    every = sum(len(document.sentences) for document in documents[:40])
    assert number_of_windows + too_long == every
    assert too_long > 0


@pytest.mark.slow
@pytest.mark.parametrize("length", [48, 200])
def test_documents_as_windows(tokenizer: Any, length: int) -> None:
    documents, _ = read((treebank() / "en_gum-ud-dev.conllu").read_text(encoding="utf-8"))
    for document in documents[:4]:
        windows, _ = mention_windows(document, tokenizer, length, split=0)
        numbers = [int(window.name.removeprefix(f"{document.name}/")) for window in windows]
        assert numbers == sorted(set(numbers))
        for first, window in zip(numbers, windows, strict=True):
            # Sentences, one after the other, as long as they are what the window begins with.
            text, words, named, number = "", [], [], first
            for number in range(first, len(document.sentences)):
                sentence = document.sentences[number]
                longer = text + (" " if text else "") + sentence.text
                if not window.text.startswith(longer):
                    break
                start, base = len(longer) - len(sentence.text), len(words)
                named += [(m.entity, base + m.head) for m in sentence.mentions]
                words += [(start + w.start, start + w.end) for w in sentence.words]
                text = longer
            else:
                number += 1
            assert window.text == text
            assert list(window.ids) == tokenizer(text)["input_ids"]
            assert len(window.ids) <= length
            assert list(window.words) == slow_words(words, window.offsets, window.special)
            assert window.notes is not None
            assert [(m.entity, m.head) for m in window.notes.mentions] == named
            assert len(named) >= 2
            if number < len(document.sentences):
                # One more sentence would not have fitted, by what sentences take one by one.
                more = [one.text for one in document.sentences[first : number + 1]]
                alone = tokenizer(more, add_special_tokens=False)["input_ids"]
                assert sum(window.special) + sum(map(len, alone)) > length


@pytest.mark.slow
def test_sentences_that_can_not_be_windows_are_counted(tokenizer: Any) -> None:
    named = "Entity=(1-x)"
    text = (
        block(line("1", "One", misc=named), line("2", "two", "1", "dep", named))
        + block(*(line(str(n), "long", str(n - 1), "dep", named) for n in range(1, 30)))
        + block(line("1", "Three", misc=named), line("2", "four", "1", "dep", named))
    )
    (document,), _ = read(text)
    windows, skipped = sentence_windows(document, tokenizer, 20, split=0)
    assert [window.text for window in windows] == ["One two", "Three four"]
    assert skipped == Counter({"sentence longer than the window": 1})
    windows, skipped = mention_windows(document, tokenizer, 20, split=0)
    assert [window.name for window in windows] == ["document 0/0", "document 0/2"]
    assert skipped == Counter({"sentence longer than the window, among mentions": 1})


@pytest.mark.slow
def test_a_word_that_the_tokenizer_drops(quiet_transformers: None) -> None:
    # BERT's tokenizers leave control characters out.
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    named = "Entity=(1-x)"
    good = block(line("1", "One", misc=named), line("2", "two", "1", "dep", named))
    (document,), _ = read(good + block(line("1", "One"), line("2", "\x07", "1", "dep")) + good)
    windows, skipped = sentence_windows(document, tokenizer, 20, split=0)
    assert [window.name for window in windows] == ["document 0/0", "document 0/2"]
    assert skipped == Counter({"sentence with a word that has no tokens": 1})
    windows, skipped = mention_windows(document, tokenizer, 20, split=0)
    assert [window.name for window in windows] == ["document 0/0", "document 0/2"]
    assert skipped == Counter({"sentence with a word that has no tokens, among mentions": 1})
    assert windows[0].notes is not None
    assert [one.entity for one in windows[0].notes.mentions] == ["1", "1"]
