"""The page of the command line has every command, and of each every option, as the command says."""

import re
from enum import EnumType
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from regard.cli.app import COMMANDS as NAMES
from regard.cli.app import load

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


def _commands() -> dict[str, Any]:
    """Return all commands by the words that call them."""
    found: dict[str, Any] = {}
    for name in NAMES:
        one = load(name)
        inner = getattr(one, "commands", None)
        found |= {f"regard {name} {word}": each for word, each in (inner or {}).items()}
        found |= {} if inner else {f"regard {name}": one}
    return found


COMMANDS = _commands()


def _section(called: str, command: Any) -> str:
    """Return what the page has to say of a command: what it does, its arguments and options."""
    kinds = get_type_hints(command.callback)
    rows = [
        f"| {_names(one)} | {_default(one)} | {one.help}{_choices(kinds[one.name])} |"
        for one in command.params
        if one.name != "help"
    ]
    first = command.help.partition("\n")[0]
    return "\n".join([f"### {called}", "", first, "", "| | by default | |", "|---|---|---|", *rows])


def _names(taken: Any) -> str:
    if taken.param_type_name == "argument":
        # A bar would end the cell.
        names = (taken.metavar or taken.name.upper()).strip("[]").split("|")
    else:
        names = [*taken.opts, *taken.secondary_opts]
    return ", ".join(f"`{name}`" for name in names)


def _default(taken: Any) -> str:
    if taken.required:
        return "needed"
    if taken.default is None or taken.default is False:
        return ""
    if taken.default is True:
        return f"`{taken.opts[0]}`"
    return f"`{taken.default}`"


def _choices(kind: Any) -> str:
    listed = [f"`{one}`" for part in get_args(kind) if isinstance(part, EnumType) for one in part]
    return f" One of {', '.join(listed)}." if listed else ""


@pytest.mark.parametrize("called", COMMANDS)
def test_the_page_has_all_options(called: str) -> None:
    expected = _section(called, COMMANDS[called])
    page = PAGE.read_text(encoding="utf-8")
    assert f"{expected}\n\n" in f"{page}\n", f"{PAGE.name} must have:\n\n{expected}\n"


def test_the_page_has_no_other_commands() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^### (.*)", page, re.MULTILINE) == list(COMMANDS)
