"""Prompts: a planted fact among sentences of Moby-Dick, and two that could be taken for it."""

import random
from dataclasses import dataclass
from functools import cache

from materials import moby_dick
from regard.attribution.passages import spans_of

NAMES = ("Harriet", "Oliver", "Matilda", "Edmund", "Beatrice", "Sylvester", "Cordelia", "Rupert")
THINGS = ("violin", "telescope", "bicycle", "lantern", "parrot", "compass", "umbrella", "piano")
TEMPLATES = (
    ("{name} bought a {thing} last week.", "What did {name} buy last week?", "{name} bought a"),
    ("{name} has lost a {thing} in the rain.", "What has {name} lost?", "{name} has lost a"),
    (
        "On the market, {name} sold a {thing}.",
        "What did {name} sell?",
        "On the market, {name} sold a",
    ),
    ("The favourite toy of {name} is a {thing}.", "What toy does {name} like?", "{name} likes a"),
)
"""A fact, a question, and how the answer begins."""


@dataclass(frozen=True)
class Kind:
    """How long prompts are.

    Attributes:
        name: what they are called.
        passages: how many passages they have.
        letters: the fewest and the most letters of a sentence.
        prompts: how many there are.
    """

    name: str
    passages: int
    letters: tuple[int, int]
    prompts: int


KINDS = (
    Kind("1,000 tokens", 32, (75, 170), 40),
    Kind("4,000 tokens", 64, (190, 330), 10),
    Kind("8,192 tokens", 256, (85, 178), 1),
)


@dataclass(frozen=True)
class Planted:
    """A prompt with a planted fact.

    Attributes:
        text: the prompt.
        passages: its passages.
        planted: which of them has the fact.
        answer: what follows the prompt, if the fact is used.
    """

    text: str
    passages: list[str]
    planted: int
    answer: str


def planted(kind: Kind, number: int) -> Planted:
    """Return one of the prompts of a kind, always the same."""
    chance = random.Random(f"{kind.name} {number}")
    names, things = chance.sample(NAMES, 3), chance.sample(THINGS, 3)
    fact, question, beginning = chance.choice(TEMPLATES)
    facts = [fact.format(name=name, thing=thing) for name, thing in zip(names, things, strict=True)]
    passages = chance.sample(_sentences(kind.letters), kind.passages - 3) + facts
    chance.shuffle(passages)
    asked = f"Question: {question.format(name=names[0])}"
    begun = f"Answer: {beginning.format(name=names[0])}"
    text = "\n".join([*passages, "", asked, begun])
    return Planted(text, passages, passages.index(facts[0]), f" {things[0]}")


@cache
def _sentences(letters: tuple[int, int]) -> list[str]:
    """Return sentences of Moby-Dick that are so long, each once."""
    book = " ".join(moby_dick().read_text(encoding="utf-8")[40_000:].split())
    sentences = dict.fromkeys(book[start:stop] for start, stop in spans_of(book, "sentences"))
    fewest, most = letters
    return [sentence for sentence in sentences if fewest <= len(sentence) <= most]
