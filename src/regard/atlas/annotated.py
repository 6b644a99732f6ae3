"""Read CoNLL-U: text annotated with dependencies and mentions."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from regard.atlas.extra import needed
from regard.atlas.window import Mention


@dataclass(frozen=True)
class Word:
    """A syntactic word.

    Attributes:
        form: as written. The words of "don't" are "do" and "n't".
        start: its first character in the text of the sentence.
        end: one past its last character.
        governor: the index of its governor in the sentence, or −1.
        relation: its dependency relation, such as "nsubj" or "obl:tmod".
    """

    form: str
    start: int
    end: int
    governor: int
    relation: str


@dataclass(frozen=True)
class Sentence:
    """A sentence.

    Attributes:
        text: its text, joined from the forms of its words.
        words: its words.
        mentions: its mentions, in the order of their heads.
    """

    text: str
    words: tuple[Word, ...]
    mentions: tuple[Mention, ...] = ()


@dataclass(frozen=True)
class AnnotatedDocument:
    """A document.

    Attributes:
        name: its name in the file, or "document 0", "document 1", … without one.
        sentences: its sentences.
    """

    name: str
    sentences: tuple[Sentence, ...]


def read(text: str) -> tuple[list[AnnotatedDocument], Counter[str]]:
    """Read documents from CoNLL-U.

    A document begins at each `# newdoc`; without any, there is one. Mentions are read from
    `Entity=` as in GUM and CorefUD. Malformed items are skipped.

    Args:
        text: the content of a file.

    Returns:
        the documents with sentences, and counts of skipped items by reason.

    Raises:
        ImportError: conllu is not installed.
    """
    skipped: Counter[str] = Counter()
    names: list[str] = []
    documents: list[list[Sentence]] = []
    for comments, lines in _blocks(text):
        found = _name_of_new(comments)
        if found is not None or not documents:
            names.append(found or f"document {len(names)}")
            documents.append([])
        if not lines:
            continue
        sentence = _sentence(lines, skipped)
        if sentence is None:
            skipped["malformed sentence"] += 1
        else:
            documents[-1].append(sentence)
    pairs = zip(names, documents, strict=True)
    made = [AnnotatedDocument(name, tuple(sentences)) for name, sentences in pairs if sentences]
    return made, +skipped


def _blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield comments and lines of each sentence."""
    comments: list[str] = []
    lines: list[str] = []
    # Not splitlines(), which also splits at separators that a form may contain.
    for line in [*text.removeprefix("\ufeff").split("\n"), ""]:
        line = line.rstrip("\r")
        if line.strip():
            (comments if line.startswith("#") else lines).append(line)
        elif comments or lines:
            yield comments, lines
            comments, lines = [], []


def _name_of_new(comments: Sequence[str]) -> str | None:
    """Return the name of a document that begins here; "" without a name, None if none begins."""
    for comment in comments:
        said = comment.removeprefix("#").strip()
        if said == "newdoc":
            return ""
        key, equals, name = said.partition("=")
        if equals and key.split() == ["newdoc", "id"]:
            return name.strip()
    return None


def _sentence(lines: Sequence[str], skipped: Counter[str]) -> Sentence | None:
    """Return a sentence, or None if it is malformed."""
    rows = [_fields(line) for line in lines]
    tokens = [row for row in rows if row is not None]
    words = [row for row in tokens if isinstance(row["id"], int)]
    numbers = range(1, len(words) + 1)
    if len(tokens) < len(rows) or not words or [row["id"] for row in words] != list(numbers):
        return None
    if not all(row["head"] in range(len(words) + 1) and row["head"] != row["id"] for row in words):
        return None
    written = {
        row["id"][0]: row for row in tokens if isinstance(row["id"], tuple) and row["id"][1] == "-"
    }
    if any(row["id"][2] not in numbers for row in written.values()):
        return None
    text, spans = _spelled(words, written)
    governors = [row["head"] - 1 for row in words]
    made = [
        Word(row["form"], *span, governor, row["deprel"])
        for row, span, governor in zip(words, spans, governors, strict=True)
    ]
    entities = [(row["misc"] or {}).get("Entity") or "" for row in words]
    return Sentence(text, tuple(made), _mentions(entities, governors, skipped))


_FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def _fields(line: str) -> Mapping[str, Any] | None:
    """Return the fields of a line by name, or None if it is malformed."""
    parser = needed("conllu.parser")
    parts = line.split("\t")
    # conllu also splits at two spaces, and accepts fewer fields.
    if len(parts) != len(_FIELDS) or "  " in line or not all(parts):
        return None
    parsers: dict[str, Callable[[list[str], int], Any]] = {
        "id": lambda parts, i: parser.parse_id_value(parts[i]),
        "head": lambda parts, i: parser.parse_int_value(parts[i]),
        "misc": lambda parts, i: parser.parse_dict_value(parts[i]),
    }
    try:
        return parser.parse_line(line, _FIELDS, parsers)
    except (needed("conllu.exceptions").ParseException, ValueError):
        return None


def _spelled(
    words: Sequence[Mapping[str, Any]], written: Mapping[int, Mapping[str, Any]]
) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of a sentence, and the characters of each of its words.

    Args:
        words: the fields of the syntactic words.
        written: the fields of multiword tokens, by the id of their first word.
    """
    text = ""
    spans: list[tuple[int, int]] = []
    while len(spans) < len(words):
        first = len(spans)
        token = written.get(first + 1, words[first])
        last = token["id"] if token is words[first] else token["id"][2]
        spans += _shared(len(text), token["form"], [row["form"] for row in words[first:last]])
        text += token["form"] + ("" if (token["misc"] or {}).get("SpaceAfter") == "No" else " ")
    # Without the space after the last word.
    return text[: spans[-1][1]], spans


def _shared(start: int, written: str, forms: Sequence[str]) -> list[tuple[int, int]]:
    """Return the characters of the words of a multiword token, such as "don't".

    If the forms join to the token ("do" and "n't"), each word has its own characters; otherwise
    ("will" and "n't" for "won't") each has all of them.
    """
    if "".join(forms) != written:
        return [(start, start + len(written))] * len(forms)
    ends = list(accumulate(map(len, forms), initial=start))
    return list(pairwise(ends))


_PART = re.compile(r"[()]|[^()]+")


def _brackets(entities: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield the mentions of a word: the entity, and whether it begins and ends here.

    >>> list(_brackets("(1-person(2)3)"))
    [('1-person', True, False), ('2', True, True), ('3', False, True)]
    """
    before = ""
    parts = [*_PART.findall(entities), ""]
    for part, after in pairwise(parts):
        if part not in "()" and (before == "(" or after == ")"):
            yield part, before == "(", after == ")"
        before = part


def _mentions(
    entities: Sequence[str], governors: Sequence[int], skipped: Counter[str]
) -> tuple[Mention, ...]:
    """Return the mentions of a sentence.

    Args:
        entities: the mentions that begin and end at each word: "(3-person-…" or "(3" begins one of
            entity 3, "3)" ends it, "(3-person-…)" is a single word.
        governors: the index of the governor of each word.
        skipped: counts of skipped items.
    """
    found: list[Mention] = []
    # The first words of open mentions, by entity.
    begun: dict[str, list[int]] = {}
    for number, brackets in enumerate(entities):
        for said, begins, ends in _brackets(brackets):
            entity = said.split("-", 1)[0]
            if "[" in entity:
                skipped["mention in several parts"] += begins and "[1/" in entity
            elif begins and ends:
                found.append(Mention(entity, number, number, number))
            elif begins:
                begun.setdefault(entity, []).append(number)
            elif begun.get(entity):
                first = begun[entity].pop()
                found.append(Mention(entity, first, number, _head(first, number, governors)))
            else:
                skipped["mention without a beginning in its sentence"] += 1
    skipped["mention without an end in its sentence"] += sum(map(len, begun.values()))
    return tuple(sorted(found, key=lambda one: (one.head, one.first, one.last)))


def _head(first: int, last: int, governors: Sequence[int]) -> int:
    """Return the first word of a span whose governor is outside of it."""
    span = range(first, last + 1)
    return next((word for word in span if governors[word] not in span), first)
