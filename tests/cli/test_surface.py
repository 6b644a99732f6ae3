"""The commands and their options, frozen: what scripts of users rely on."""

from typing import Any

from typer.main import get_command

from regard.cli.app import app

SURFACE = {
    "look": {
        "text",
        "--model",
        "--layer",
        "--head",
        "--token",
        "--top",
        "--target",
        "--save",
        "--open",
        "--json",
        "--device",
        "--allow-pickle",
        "--allow-remote-code",
    },
    "heads": {
        "text",
        "--model",
        "--layer",
        "--sort",
        "--ascending",
        "--top",
        "--target",
        "--save",
        "--json",
        "--device",
        "--allow-pickle",
        "--allow-remote-code",
    },
    "explain": {
        "text",
        "--token",
        "--model",
        "--layer",
        "--head",
        "--top",
        "--scaled",
        "--target",
        "--save",
        "--json",
        "--device",
        "--allow-pickle",
        "--allow-remote-code",
    },
    "record": {
        "text",
        "--model",
        "--out",
        "--tokens",
        "--dtype",
        "--title",
        "--target",
        "--overwrite",
        "--device",
        "--allow-pickle",
        "--allow-remote-code",
    },
    "map": {"recordings", "--port", "--host", "--open"},
    "publish": {"recording", "folder", "--heads", "--depth", "--pools", "--yes"},
    "doctor": {"--json"},
}


def test_the_surface_is_as_it_was() -> None:
    command: Any = get_command(app)
    found = {
        name: {parameter.opts[0] for parameter in one.params if parameter.name != "help"}
        for name, one in command.commands.items()
    }
    assert found == SURFACE


def test_every_command_has_an_example() -> None:
    command: Any = get_command(app)
    for name, one in command.commands.items():
        assert f"regard {name}" in one.help
