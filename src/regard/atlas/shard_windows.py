"""A shard of a corpus as windows of tokens."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.atlas.annotated import AnnotatedDocument
from regard.atlas.annotated_windows import mention_windows, sentence_windows
from regard.atlas.documents import Document, documents
from regard.atlas.stable_hash import drawn
from regard.atlas.tally import Tally
from regard.atlas.text_windows import repeated_windows, text_windows
from regard.atlas.units import Shard, Unit
from regard.atlas.window import TokenWindow, split_of

REPEATS = Unit(url="", name="repeats", kind="repeats", number=0, size=0, stamp="")
"""A unit of repeated random tokens."""


@dataclass(frozen=True)
class Settings:
    """The settings of a survey.

    Attributes:
        length: maximum tokens per window.
        field: the field of the text in records; None for the defaults.
        sample: the fraction of documents to sample.
        seed: the random seed.
        effects: whether to measure the effects of heads.
    """

    length: int
    field: str | None = None
    sample: float = 1.0
    seed: int = 0
    effects: bool = False

    def wants(self, document: str) -> bool:
        """Return whether a document is in the sample, by its name."""
        return drawn(document, self.seed) < self.sample * 2**64


def prepare(shard: Shard, tokenizer: Any, settings: Settings) -> tuple[list[TokenWindow], Tally]:
    """Return the windows of a shard, and a tally of read and skipped items."""
    tally = Tally()
    windows: list[TokenWindow] = []
    for unit in shard.units:
        if unit == REPEATS:
            windows += repeated_windows(tokenizer, settings.length, settings.seed)
            continue
        for document in documents(unit, tally.skipped, settings.field):
            if not settings.wants(document.name):
                continue
            found = list(_windows(document, tokenizer, settings.length, tally.skipped))
            tally.add("documents", 1)
            tally.add("documents_cut", len([one for one in found if one.kind == "text"]) > 1)
            if not found and isinstance(document, Document):
                tally.skipped["document without tokens"] += 1
            windows += found
    tally.skipped += Counter()  # Without zeros.
    return windows, tally


def _windows(
    document: Document | AnnotatedDocument, tokenizer: Any, length: int, skipped: Counter[str]
) -> Iterator[TokenWindow]:
    if isinstance(document, Document):
        yield from text_windows(document, tokenizer, length)
        return
    split = split_of(document.name)
    for cut in (sentence_windows, mention_windows):
        windows, wrong = cut(document, tokenizer, length, split)
        skipped.update(wrong)
        yield from windows
