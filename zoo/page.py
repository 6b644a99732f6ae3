"""The table of the docs, made of results."""

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from zoo import result, sizes
from zoo.result import Result

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "watched-models.md"
TITLE = "## Every type of transformers"
LONGEST = 150
"""So many characters a remark may have."""

_INTRODUCTION = """
`python -m zoo` makes a small model of every type that transformers has, with random weights, and
calls it with {batch} texts, images or sounds: unpadded, padded on the right and on the left, with
the attention that it has by itself and with eager attention. Each run is watched.

- Outputs must be bit by bit what they are when nobody looks.
- Each call must be within 0.00001 of what the model returns with `output_attentions=True` and of
  what the function that computes its attention returns; within 0.0001 if these come from a run
  with another kernel.
- `seen.verify()` must raise if a call is not understood, and only then.
- With `attn_implementation="regard"`, outputs must be the same, or an error says why not.
- Effects must be the gradients of the scores that the model with eager attention passes to its
  softmax ({effects} calls of {with_effects} types could be compared), and those of heads agree with
  the gradients of factors on them. Norms are compared with their definition, one ablated head with
  zeros for its projection. All may be refused.

With torch {torch} and transformers {transformers}, {ran} of {all} types ran:

| | types | |
|---|---|---|
{counts}

Under "regard": *same* means the same outputs, *refuses* an error with the reason.
"""

_RAN = ("exact", "understood", "heads unknown", "refused", "no attention", "WRONG")


def write(results: Mapping[str, Result], page: Path = PAGE) -> None:
    """Write the part of a page that is about all types.

    Args:
        results: what was found out, by type.
        page: the page. What comes before the title stays.
    """
    before, _, _ = page.read_text(encoding="utf-8").partition(TITLE)
    page.write_text(f"{before.rstrip()}\n\n{section(results)}", encoding="utf-8")


def section(results: Mapping[str, Result]) -> str:
    """Return what the page says about all types."""
    found = sorted(results.values(), key=lambda one: one.name)
    ran = [one for one in found if one.verdict in _RAN]
    grouped = {name: [one for one in found if one.verdict == name] for name in result.CLASSES}
    introduction = _INTRODUCTION.format(
        torch=version("torch").partition("+")[0],
        transformers=version("transformers"),
        batch={3: "three"}[sizes.BATCH],
        effects=f"{sum(one.effects for one in ran):,}",
        with_effects=sum(one.effects > 0 for one in ran),
        ran=len(ran),
        all=len(found),
        counts="\n".join(
            f"| {name} | {len(grouped[name])} | {words} |" for name, words in result.CLASSES.items()
        ),
    )
    parts = [
        f"{TITLE}\n{introduction.rstrip()}",
        _table(
            ("type", "", "its attention", '"regard"', "remarks"),
            ((one.name, one.verdict, _attention(one), _ours(one), _remarks(one)) for one in ran),
        ),
        "### Types of which no small model was made",
        _table(
            ("type", "why"),
            ((one.name, _shortened(one.reasons[0])) for one in grouped["cannot be configured"]),
        ),
        "### Types that are parts of others",
        "Their configurations belong to no model of their own: "
        + ", ".join(f"`{one.name}`" for one in grouped["part"])
        + ".",
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(head), "|".join("---" for _ in head)]
    lines += [" | ".join((f"`{name}`", *rest)) for name, *rest in rows]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def _attention(one: Result) -> str:
    if not one.calls:
        return ""
    words = "call" if one.calls == 1 else "calls"
    return f"{one.calls} {words}: {', '.join(one.kernels)}"


def _ours(one: Result) -> str:
    return {"same outputs": "same"}.get(one.ours, "refuses" if one.ours else "")


def _remarks(one: Result) -> str:
    """Return what is to be said of a type, in a few words."""
    said = [*one.wrong, *one.reasons]
    notes = [note for note in one.notes if note.startswith(("its ", "it ", "with its "))]
    return _shortened("; ".join([*said[:1], *notes[:1]]))


def _shortened(words: str) -> str:
    words = re.sub(r"^StrictDataclass\w+: Class validation .*? '\w+': /\s*", "", words)
    plain = re.sub(r"[^\x20-\x7e×…–—é]", "", words).replace("|", "/").replace("`", "")
    plain = re.sub(r"([<>*_\[\]\\])", r"\\\1", plain.replace(" / ", " "))
    return plain if len(plain) <= LONGEST else plain[:LONGEST].rsplit(" ", 1)[0] + " …"
