"""`regard atlas`: what every head of a model does, over a corpus; and `regard atlas show`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import nn
from typer.core import TyperGroup

from regard.cli.console import one_line_errors, tell
from regard.cli.console import out as stdout
from regard.cli.loading import load, load_tokenizer
from regard.cli.options import DeviceOption, ModelOption, PickleOption, RemoteCodeOption


class _SurveyUnlessSaid(TyperGroup):
    """A group whose first word may be left out where it is "survey"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["survey", *args]
        return super().parse_args(ctx, args)


atlas = typer.Typer(
    name="atlas",
    cls=_SurveyUnlessSaid,
    no_args_is_help=True,
    help="""Measure what every head of a model does, over a corpus.

    **Examples**

        regard atlas books/ -m ./smollm2 --out heads.atlas

        regard atlas show heads.atlas
    """,
)


@atlas.command()
@one_line_errors
def survey(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file, a folder, a pattern with *, or a URL: .txt .jsonl .parquet .conllu.",
        ),
    ],
    model: ModelOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="NAME.atlas", help="The folder to write.")
    ],
    length: Annotated[
        int | None, typer.Option(min=8, help="Longest window, in tokens; 512 by default.")
    ] = None,
    field: Annotated[str | None, typer.Option(help="Field or column that holds the text.")] = None,
    sample: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the documents to sample.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Largest batch size, in windows.")] = 32,
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of Ray workers, on this machine or at --address."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; by default one is started here.")
    ] = None,
    gpus: Annotated[
        float, typer.Option(min=0.0, help="GPUs per worker; a fraction shares one.")
    ] = 0.0,
    device: DeviceOption = "cpu",
    allow_pickle: PickleOption = False,
    allow_remote_code: RemoteCodeOption = False,
) -> None:
    """Run a model over a corpus and measure what each of its heads does.

    The result is a folder of Parquet tables and a report.html. If it is interrupted, run it again:
    what was counted is not counted twice.

    **Examples**

        regard atlas books/ -m ./smollm2 --out heads.atlas

        regard atlas "corpus/*.parquet" -m ./smollm2 --out heads.atlas --workers 8 --sample 0.1
    """
    from regard.atlas import Loader
    from regard.atlas import survey as surveyed
    from regard.atlas.loader import located

    name, place, stamp = located(model)
    loader = Loader(
        name,
        partial(
            _model,
            place,
            device=device,
            allow_pickle=allow_pickle,
            allow_remote_code=allow_remote_code,
        ),
        partial(load_tokenizer, place, allow_remote_code=allow_remote_code),
        stamp,
    )
    found = surveyed(
        source,
        out,
        loader,
        length=length,
        field=field,
        sample=sample,
        seed=seed,
        batch_size=batch_size,
        shards=shards,
        workers=workers,
        address=address,
        gpus=gpus,
    )
    tell(f"{found}")
    for reason, count in found.about.skipped.items():
        tell(f"left out: {reason} ({count:,})")
    tell(f"look at {out / 'report.html'}, or at")
    tell(f"    regard atlas show {out}")


@atlas.command()
@one_line_errors
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME.atlas", help="The folder that a survey has written.")
    ],
    top: Annotated[int, typer.Option(min=1, help="Number of heads of each kind.")] = 5,
) -> None:
    """Show what the heads of a model do.

    **Examples**

        regard atlas show heads.atlas
    """
    from dataclasses import asdict

    from regard.atlas import Atlas
    from regard.atlas.tables import SCHEMA
    from regard.cli.atlas_show import show as show_tables

    found = Atlas(folder)
    tables = {name: found.table(name) for name in SCHEMA}
    show_tables(tables, asdict(found.about), stdout(), limit=top)


def _model(model: str, **options: Any) -> nn.Module:
    loaded = load(model, **options)
    if loaded.kind != "text":
        raise ValueError(f"{model} takes {loaded.kind}: survey an encoder or a decoder of text")
    return loaded.model
