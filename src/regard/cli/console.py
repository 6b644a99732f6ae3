"""What is said where: data on stdout, all else on stderr, and faults in one line."""

import functools
import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

_WIDE = 200
"""How many columns a table has that nobody looks at in a terminal."""


def out() -> Console:
    """Return the console for data."""
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


@contextmanager
def doing(what: str) -> Generator[None]:
    """Say what is being done for as long as it takes, where somebody looks."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def tell(what: str) -> None:
    """Say something that is no data."""
    Console(stderr=True, highlight=False).print(what, markup=False, soft_wrap=True)


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
