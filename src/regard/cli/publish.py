"""`regard publish`: a map as static files."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli.console import doing, one_line_errors, tell


@one_line_errors
def publish(
    recording: Annotated[str, typer.Argument(help="Folder or URL of a recording.")],
    folder: Annotated[
        Path,
        typer.Argument(help="Output folder: new, empty, or of a former publish.", file_okay=False),
    ],
    heads: Annotated[
        str,
        typer.Option(
            metavar="LAYER.HEAD,…",
            help="Heads: 18.6; 18.mean is the mean of layer 18, mean that of all layers; or all.",
        ),
    ] = "all",
    depth: Annotated[
        int | None,
        typer.Option(min=0, help="Deepest zoom level; by default the deepest stored one."),
    ] = None,
    pools: Annotated[
        str,
        typer.Option(
            metavar="mean,max,effect", help="What cells show: mean or max of weights, effects."
        ),
    ] = "mean,max",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
) -> None:
    """Write the map of a recording as static files for any web server.

    **Examples**

        regard publish book.regard site/ --heads 18.6,16.0 --depth 4

        regard publish book.regard site/ --yes && python -m http.server -d site
    """
    from regard.server.estimate import estimate
    from regard.server.publication import planned
    from regard.server.publish import check_free, write

    opened = regard.open(recording)
    plan = planned(opened, heads=_listed(heads), depth=depth, pools=_listed(pools))
    check_free(folder.expanduser().resolve())
    with doing("estimating the size"):
        tell(str(estimate(plan)))
    if not yes:
        if not sys.stdin.isatty():
            raise ValueError("stdin is not a terminal: pass --yes")
        typer.confirm(f"Write to {folder}?", abort=True, err=True)
    tell(str(write(plan, folder)))


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
