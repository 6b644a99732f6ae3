"""The commands and their options, frozen: what scripts of users rely on."""

from collections.abc import Callable
from typing import Any

from regard.cli.app import COMMANDS, load

SURFACE = {
    "look": {
        "text",
        "--model",
        "--layer",
        "--head",
        "--token",
        "--top",
        "--target",
        "--effect-of",
        "--against",
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
        "--effect-of",
        "--against",
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
        "--effect-of",
        "--against",
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
        "--effects",
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


def _commands() -> dict[str, Any]:
    """Return all commands by the words that call them."""
    loaded = {name: load(name) for name in COMMANDS}
    atlas = loaded.pop("atlas")
    return loaded | {f"atlas {name}": one for name, one in atlas.commands.items()}


def test_the_surface_is_as_it_was() -> None:
    found = {
        name: {parameter.opts[0] for parameter in one.params if parameter.name != "help"}
        for name, one in _commands().items()
    }
    assert found == SURFACE


def test_every_command_has_an_example() -> None:
    for name, one in _commands().items():
        # The first word of a survey can be left out.
        assert f"regard {name.removesuffix(' survey')}" in one.help


def test_the_list_of_commands_says_what_each_says() -> None:
    said = {name: " ".join(load(name).help.split("\n\n")[0].split()) for name in COMMANDS}
    assert said == COMMANDS


LOADED = """
import sys
from regard.cli import main
sys.argv = ["regard", "{option}"]
try:
    main()
except SystemExit:
    print("loaded:", *({"torch", "regard.cli.look"} & set(sys.modules)))
"""


def test_help_and_version_do_not_load_torch(run_python: Callable[..., str]) -> None:
    for option, says in (("--help", "Print the strongest keys"), ("--version", "0.")):
        said = run_python("-c", LOADED.replace("{option}", option))
        assert says in said
        assert said.endswith("loaded:\n")
