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
        help="A folder of transformers, a GGUF file, or a name on the Hugging Face hub.",
    ),
]
LayerOption = Annotated[int | None, typer.Option("--layer", "-l", help="Layer, counted from 0.")]
HeadOption = Annotated[int | None, typer.Option("--head", help="Head, counted from 0.")]
TargetOption = Annotated[
    str | None,
    typer.Option(help="Target text of an encoder–decoder; by default what it generates."),
]
DeviceOption = Annotated[str, typer.Option(help="Where to run the model: cpu, cuda, mps.")]
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
        help="Allow pickled weights, which can run any code when they are loaded.",
    ),
]
RemoteCodeOption = Annotated[
    bool,
    typer.Option(
        "--allow-remote-code",
        help="Allow Python code that comes with the model to run.",
    ),
]
