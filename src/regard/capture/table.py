"""Watched calls as a table."""

import html
import os
import sys
from collections.abc import Sequence

from regard.calls.call import AttentionCall
from regard.matrix.scores import Scores

MOST = 40
"""Maximum calls in a table: the first and the last ones."""

_WIDEST = 36
"""Maximum characters of a pattern."""

_HEADER = ("", "module", "looks at", "heads", "queries × keys", "pattern", "kernel", "check")
_TO_THE_RIGHT = (0, 3, 4)


def as_text(calls: Sequence[AttentionCall]) -> str:
    """Return a table for terminals, coloured if they support it."""
    shown = _shown(calls)
    rows = [_HEADER, *(_cells(call) if call else _gap(len(calls)) for call in shown)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
    lines = [_line(row, widths) for row in rows]
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for number, call in enumerate(shown, start=1):
        if coloured and call and failed(call):
            lines[number] = f"\033[31m{lines[number]}\033[0m"
    return "\n".join(lines)


def as_html(calls: Sequence[AttentionCall]) -> str:
    """Return a table for notebooks."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in _HEADER)
    body = ""
    for call in _shown(calls):
        cells = _cells(call) if call else _gap(len(calls))
        style = ' style="color:#d62728"' if call and failed(call) else ""
        columns = "".join(
            f'<td style="text-align:{"right" if place in _TO_THE_RIGHT else "left"}">'
            f"{html.escape(cell)}</td>"
            for place, cell in enumerate(cells)
        )
        body += f"<tr{style}>{columns}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def failed(call: AttentionCall) -> bool:
    """Return whether a call is wrong or was not understood."""
    return bool(call.problem) or call.check.passed is False


def _shown(calls: Sequence[AttentionCall]) -> list[AttentionCall | None]:
    """Return the calls to show, with None for a gap."""
    if len(calls) <= MOST:
        return list(calls)
    return [*calls[: MOST * 3 // 4], None, *calls[-MOST // 4 :]]


def _gap(count: int) -> tuple[str, ...]:
    left_out = count - MOST * 3 // 4 - MOST // 4
    return ("⋮", f"{left_out:,} more", *("",) * (len(_HEADER) - 2))


def _cells(call: AttentionCall) -> tuple[str, ...]:
    pattern = "" if call.pattern is None else str(call.pattern)
    if isinstance(call.source, Scores) and call.source.biased:
        pattern += " + bias"
    return (
        str(call.index),
        call.module or "(the model)",
        call.kind,
        call.heads_as_text.replace("/", " / "),
        f"{call.queries:,} × {call.keys:,}",
        pattern if len(pattern) <= _WIDEST else f"{pattern[: _WIDEST - 1]}…",
        call.kernel,
        f"✗ {call.problem}" if call.problem else str(call.check),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if place in _TO_THE_RIGHT else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
