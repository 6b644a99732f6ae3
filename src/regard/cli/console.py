"""Print data to stdout, everything else to stderr, and errors in one line."""

import functools
import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment
from rich.text import Text

from regard.printable import printable

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

_WIDE = 200
"""Columns of a table if stdout is not a terminal."""


@dataclass(frozen=True)
class _Printable:
    """A renderable without control characters, except Rich's own."""

    shown: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.shown, options):
            yield Segment(text if control else printable(text), style, control)


class _OnlyPrintable(RenderHook):
    """Strips control characters from names and texts, which come from untrusted files."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(one) for one in renderables]


def console(**options: Any) -> Console:
    """Return a console that prints no control characters."""
    made = Console(highlight=False, **options)
    made.push_render_hook(_OnlyPrintable())
    return made


def out() -> Console:
    """Return the console for data."""
    found = console(soft_wrap=False)
    return found if found.is_terminal else console(width=_WIDE)


@contextmanager
def doing(what: str) -> Generator[None]:
    """Show a status line while the block runs, if stderr is a terminal."""
    stderr = console(stderr=True)
    if not stderr.is_terminal:
        yield
        return
    # Text, because a folder name may contain Rich markup.
    with stderr.status(Text(printable(what))):
        yield


def tell(what: str) -> None:
    """Print a message to stderr."""
    console(stderr=True).print(what, markup=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print data as JSON."""
    json.dump(data, sys.stdout, ensure_ascii=True, indent=None if not sys.stdout.isatty() else 2)
    sys.stdout.write("\n")


def one_line_errors(command: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Make a command print errors in one line, and exit with code 1."""

    @functools.wraps(command)
    def run(*args: Arguments.args, **options: Arguments.kwargs) -> Returned:
        try:
            return command(*args, **options)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            # The reader has closed the pipe. Python would print an error again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            if os.environ.get("REGARD_TRACEBACK"):
                raise
            said = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            known = isinstance(error, ImportError | OSError | RuntimeError | ValueError)
            kind = "" if known and said else f"{type(error).__name__}: "
            tell(f"error: {kind}{' '.join(said.split())}")
            raise typer.Exit(1) from error

    return run
