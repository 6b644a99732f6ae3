"""The page of an attribution; `web/README.md` has its format."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.attribution.hidden import HiddenPassages
from regard.attribution.looks import HeadLooks
from regard.calls.tokens import readable
from regard.views import diverging
from regard.views.numbers import counted
from regard.views.one_file import one_file
from regard.views.page import Page

if TYPE_CHECKING:
    from regard.attribution.attribution import Attribution

VERSION = 2

TITLE = "Which passages did the answer use?"

_DIGITS = 9
"""As many as tell float32 numbers apart."""


def page_of(
    found: "Attribution", *, title: str, about: str, checked: HiddenPassages | None
) -> Page:
    """Return the page of an attribution.

    Args:
        found: the attribution.
        title: its title.
        about: a line below it.
        checked: what hiding passages did, if some were hidden.

    Raises:
        FileNotFoundError: the script of the page was not built.
    """
    title = title or TITLE
    html = one_file(
        "regard.attribution",
        "attribution",
        title=title,
        facts=facts_of(found, title=title, about=about, checked=checked),
        sorry="This page shows passages and their scores with the help of JavaScript.",
    )
    tokens = counted(len(found.prompt_tokens), "token")
    summary = f"{counted(len(found.passages), 'passage')}, {tokens}"
    return Page(html, summary, title)


def facts_of(
    found: "Attribution", *, title: str, about: str, checked: HiddenPassages | None
) -> dict[str, Any]:
    """Return the data of the page."""
    sizes = (counted(len(found.passages), "passage"), counted(len(found.prompt_tokens), "token"))
    exact = {} if checked is None else dict(zip(checked.passages, checked.exact, strict=True))
    said = {} if checked is None else checked.disagreements
    by_head = None if found.by_head is None else found.by_head.permute(2, 0, 1)
    return {
        "version": VERSION,
        "title": title,
        "about": " · ".join(words for words in (about, *sizes) if words),
        "colours": {"light": diverging.LIGHT, "dark": diverging.DARK},
        "how": found.how,
        "log_prob": _number(found.log_prob),
        "notes": found.notes,
        "prompt": found.prompt_tokens,
        "answer": readable(found.answer_tokens),
        "passages": [(one.tokens.start, one.tokens.stop) for one in found.passages],
        "scores": _numbers(found.scores),
        "exact": [
            _number(float(exact[number])) if number in exact else None
            for number in range(len(found.passages))
        ],
        "disagreements": [said.get(number) for number in range(len(found.passages))],
        "by_token": None if found.by_token is None else _rows(found.by_token),
        "by_head": None if by_head is None else [_rows(passage) for passage in by_head],
        "looks": None if found.looks is None else [_looks(passage) for passage in found.looks],
    }


def _looks(heads: Sequence[HeadLooks]) -> list[dict[str, Any]]:
    return [
        {
            "layer": one.layer,
            "head": one.head,
            "keys": _numbers(one.by_key),
            "queries": list(zip(one.queries, _numbers(one.by_query), strict=True)),
        }
        for one in heads
    ]


def _rows(values: Tensor) -> list[list[float]]:
    return [_numbers(row) for row in values]


def _numbers(values: Tensor) -> list[float]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float:
    """Return a number without digits that only float64 has."""
    return float(f"{value:.{_DIGITS}g}")
