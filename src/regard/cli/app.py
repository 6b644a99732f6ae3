"""The app with all commands."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard import __version__

COMMANDS = {
    "look": "Print the strongest keys of a token in each head, heads with the sharpest focus "
    "first.",
    "heads": "List all heads with entropy, distance, and weight on the first, previous and own "
    "token.",
    "explain": "Compute attention for one token, step by step: vectors, scores, scaling, softmax, "
    "sum.",
    "attribute": "Rank the passages of a prompt by how much they support the answer.",
    "record": "Run a model over a text and write its attention to disk, with maps of every head.",
    "map": "Serve recordings as a map of every head: pan, zoom, search, compare. Ctrl-C stops it.",
    "publish": "Write the map of a recording as static files for any web server.",
    "doctor": "List versions, devices and kernels, and why one does not work.",
    "atlas": "Measure every head of a model over a corpus.",
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
        help="Inspect the exact attention weights of a model, at any length.",
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
    """Options of all commands."""


def _load_first() -> None:
    raise AssertionError("the command that runs is the one that `load` returns")


app = _new_app(cls=_LoadsCommands)
app.callback()(options)
for name, summary in COMMANDS.items():
    app.command(name, help=summary)(_load_first)
