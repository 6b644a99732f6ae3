"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR|FILE.gguf|NAME",
        help="Model folder, GGUF file, or name on the Hugging Face hub.",
    ),
]
LayerOption = Annotated[int | None, typer.Option("--layer", "-l", help="Layer, counted from 0.")]
HeadOption = Annotated[int | None, typer.Option("--head", help="Head, counted from 0.")]
TargetOption = Annotated[
    str | None,
    typer.Option(help="Target text of an encoder–decoder; by default the model generates it."),
]
EffectOfOption = Annotated[
    str | None,
    typer.Option(
        "--effect-of",
        metavar="TOKEN",
        help='Effects on the logit of a next token, such as " Paris", instead of weights.',
    ),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN", help="With --effect-of: effects on the difference to this token's logit."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Device of the model: cpu, cuda, mps.")]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        "--save",
        "-s",
        metavar="FILE",
        help="Write a page (.html) or a figure (.svg .pdf .png).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PickleOption = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Allow pickled weights, which can run any code.",
    ),
]
RemoteCodeOption = Annotated[
    bool,
    typer.Option(
        "--allow-remote-code",
        help="Run Python code that comes with the model.",
    ),
]
