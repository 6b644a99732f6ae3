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
    "attribute": {
        "prompt",
        "--model",
        "--answer",
        "--passages",
        "--how",
        "--top",
        "--verify",
        "--json",
        "--device",
        "--allow-pickle",
        "--allow-remote-code",
        "--save",
        "--each-token",
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
    "atlas survey": {
        "source",
        "--model",
        "--out",
        "--length",
        "--field",
        "--sample",
        "--seed",
        "--batch-size",
        "--shards",
        "--workers",
        "--address",
        "--gpus",
        "--device",
        "--allow-pickle",
        "--allow-remote-code",
    },
    "atlas show": {"folder", "--top"},
    "doctor": {"--json"},
}


def _commands(group: Any, before: str = "") -> dict[str, Any]:
    """Return all commands by the words that call them."""
    found: dict[str, Any] = {}
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            found |= _commands(one, f"{name} ")
        else:
            found[before + name] = one
    return found


def test_the_surface_is_as_it_was() -> None:
    found = {
        name: {parameter.opts[0] for parameter in one.params if parameter.name != "help"}
        for name, one in _commands(get_command(app)).items()
    }
    assert found == SURFACE


def test_every_command_has_an_example() -> None:
    for name, one in _commands(get_command(app)).items():
        # The first word of a survey can be left out.
        assert f"regard {name.removesuffix(' survey')}" in one.help
