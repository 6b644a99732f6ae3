"""What is said where: data on stdout, all else on stderr, and faults in one line."""

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
"""How many columns a table has that nobody looks at in a terminal."""


@dataclass(frozen=True)
class _Printable:
    """Something to print, without what a terminal obeys but for our own colours."""

    shown: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.shown, options):
            yield Segment(text if control else printable(text), style, control)


class _OnlyPrintable(RenderHook):
    """Names and texts come from files of others: none of them may move the cursor."""

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
    """Say what is being done for as long as it takes, where somebody looks."""
    stderr = console(stderr=True)
    if not stderr.is_terminal:
        yield
        return
    # A name may be one of a stranger's folder; what is in brackets is no style.
    with stderr.status(Text(printable(what))):
        yield


def tell(what: str) -> None:
    """Say something that is no data."""
    console(stderr=True).print(what, markup=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print data as JSON."""
    json.dump(data, sys.stdout, ensure_ascii=True, indent=None if not sys.stdout.isatty() else 2)
    sys.stdout.write("\n")


def one_line_errors(command: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Make a command say in one line what is wrong, and end with code 1."""

    @functools.wraps(command)
    def run(*args: Arguments.args, **options: Arguments.kwargs) -> Returned:
        try:
            return command(*args, **options)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            # Whoever reads has read enough. Python would complain once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            # Whatever it is: who types a command is no reader of tracebacks, unless asked for.
            if os.environ.get("REGARD_TRACEBACK"):
                raise
            said = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            known = isinstance(error, ImportError | OSError | RuntimeError | ValueError)
            kind = "" if known and said else f"{type(error).__name__}: "
            tell(f"error: {kind}{' '.join(said.split())}")
            raise typer.Exit(1) from error

    return run
