"""The commands, put together."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard import __version__

COMMANDS = {
    "look": "Show where a token looks, head by head, those first that look at one word.",
    "heads": "List all heads: how widely and how far they look, and how much at what.",
    "explain": "Compute attention for one token, step by step: vectors, scores, scaling, softmax, "
    "sum.",
    "attribute": "Rank the passages of a prompt by how much they support the answer.",
    "record": "Run a model over a text and write down what its attention was, with maps of every "
    "head.",
    "map": "Open a map of every head of recordings: pan, zoom, search, compare. Ctrl-C ends it.",
    "publish": "Write the map of a recording as files, to be put on a web site. It needs no server "
    "of ours.",
    "doctor": "Say which versions, devices and kernels there are, and why one does not work.",
    "atlas": "Measure what every head of a model does, over a corpus.",
}
"""The first line of each command's help, so that the list of them needs no torch."""


class _LoadsCommands(TyperGroup):
    """A group that imports the file of a command when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load(str(name)), rest


def _new_app(**options: Any) -> typer.Typer:
    return typer.Typer(
        name="regard",
        help="Look into the attention of a model, exactly, at any length.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


def load(name: str) -> Any:
    """Return a command of the file that is named after it."""
    file = import_module(f"regard.cli.{name}")
    alone = _new_app()
    alone.callback()(options)
    if name == "atlas":
        alone.add_typer(file.atlas)
    else:
        alone.command(name)(file.map_recordings if name == "map" else getattr(file, name))
    group: Any = typer.main.get_command(alone)
    return group.commands[name]


def _version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


def options(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = None,
) -> None:
    """Take the options that all commands share."""


def _load_first() -> None:
    raise AssertionError("the command that runs is the one that `load` returns")


app = _new_app(cls=_LoadsCommands)
app.callback()(options)
for name, summary in COMMANDS.items():
    app.command(name, help=summary)(_load_first)
