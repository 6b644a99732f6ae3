"""The app with all commands."""

from typing import Annotated

import typer

from regard import __version__
from regard.cli.atlas import atlas
from regard.cli.attribute import attribute
from regard.cli.doctor import doctor
from regard.cli.explain import explain
from regard.cli.heads import heads
from regard.cli.look import look
from regard.cli.map import map_recordings
from regard.cli.publish import publish
from regard.cli.record import record

app = typer.Typer(
    name="regard",
    help="Inspect the exact attention weights of a model, at any length.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = None,
) -> None:
    """Options of all commands."""


for command in (look, heads, explain, attribute, record):
    app.command()(command)
app.command("map")(map_recordings)
app.command()(publish)
app.add_typer(atlas)
app.command()(doctor)
