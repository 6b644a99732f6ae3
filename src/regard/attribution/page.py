"""The page of an attribution; `web/README.md` has its format."""

from typing import TYPE_CHECKING, Any, cast

from regard.attribution.ranking import HiddenPassages, passage_rows
from regard.attribution.scoring import HeadLooks
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
"""Number of digits that tell float32 numbers apart."""


def page_of(
    attribution: "Attribution", *, title: str, about: str, checked: HiddenPassages | None
) -> Page:
    """Return the page of an attribution.

    Args:
        attribution: the attribution.
        title: its title.
        about: a line below it.
        checked: the losses of hidden passages, if some were hidden.

    Raises:
        FileNotFoundError: the script of the page was not built.
    """
    title = title or TITLE
    html = one_file(
        "regard.attribution",
        "attribution",
        title=title,
        facts=facts_of(attribution, title=title, about=about, checked=checked),
        sorry="This page shows passages and their scores with the help of JavaScript.",
    )
    return Page(html, ", ".join(_sizes(attribution)), title)


def facts_of(
    attribution: "Attribution", *, title: str, about: str, checked: HiddenPassages | None
) -> dict[str, Any]:
    """Return the data of the page."""
    rows = passage_rows(attribution.scores, checked)
    by_head, by_token, looks = attribution.by_head, attribution.by_token, attribution.looks
    return {
        # The page.
        "version": VERSION,
        "title": title,
        "about": " · ".join(words for words in (about, *_sizes(attribution)) if words),
        "colours": {"light": diverging.LIGHT, "dark": diverging.DARK},
        # The texts.
        "how": attribution.how,
        "log_prob": _rounded(attribution.log_prob),
        "notes": attribution.notes,
        "prompt": attribution.prompt_tokens,
        "answer": readable(attribution.answer_tokens),
        "passages": [
            (passage.tokens.start, passage.tokens.stop) for passage in attribution.passages
        ],
        # The numbers.
        "scores": _rounded(attribution.scores.tolist()),
        "exact": [None if row.exact is None else _rounded(row.exact) for row in rows],
        "disagreements": [row.disagreement or None for row in rows],
        "by_token": None if by_token is None else _rounded(by_token.tolist()),
        "by_head": None if by_head is None else _rounded(by_head.permute(2, 0, 1).tolist()),
        "looks": None if looks is None else [list(map(_head, heads)) for heads in looks],
    }


def _sizes(attribution: "Attribution") -> tuple[str, str]:
    num_passages, num_tokens = len(attribution.passages), len(attribution.prompt_tokens)
    return counted(num_passages, "passage"), counted(num_tokens, "token")


def _head(head: HeadLooks) -> dict[str, Any]:
    return {
        "layer": head.layer,
        "head": head.head,
        "keys": _rounded(head.by_key.tolist()),
        "queries": list(zip(head.queries, _rounded(head.by_query.tolist()), strict=True)),
    }


def _rounded(value: Any) -> Any:
    """Return a number, or lists of numbers, without digits that only float64 has."""
    if isinstance(value, list):
        return [_rounded(part) for part in cast(list[Any], value)]
    return float(f"{value:.{_DIGITS}g}")
