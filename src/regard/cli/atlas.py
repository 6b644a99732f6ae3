"""`regard atlas` and `regard atlas show`: measure every head of a model over a corpus."""

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


class _DefaultSurvey(TyperGroup):
    """A command group with the default command "survey"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["survey", *args]
        return super().parse_args(ctx, args)


atlas = typer.Typer(
    name="atlas",
    cls=_DefaultSurvey,
    no_args_is_help=True,
    help="""Measure every head of a model over a corpus.

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
            help="File, folder, glob or URL of .txt, .jsonl, .parquet or .conllu files.",
        ),
    ],
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="NAME.atlas", help="Output folder.")],
    length: Annotated[
        int | None, typer.Option(min=8, help="Maximum window length in tokens; 512 by default.")
    ] = None,
    field: Annotated[str | None, typer.Option(help="Field or column of the text.")] = None,
    sample: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Fraction of documents to sample.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    effects: Annotated[
        bool,
        typer.Option("--effects", help="Measure the effect of each head on the next token."),
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Maximum windows per batch.")] = 32,
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of Ray workers, here or at --address."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; by default a local one starts.")
    ] = None,
    gpus: Annotated[float, typer.Option(min=0.0, help="GPUs per worker; may be a fraction.")] = 0.0,
    device: DeviceOption = "cpu",
    allow_pickle: PickleOption = False,
    allow_remote_code: RemoteCodeOption = False,
) -> None:
    """Run a model over a corpus and measure each of its heads.

    Writes a folder of Parquet tables and a report.html. If interrupted, run it again: finished
    shards are kept.

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
            generates=effects,
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
        effects=effects,
        batch_size=batch_size,
        shards=shards,
        workers=workers,
        address=address,
        gpus=gpus,
    )
    tell(f"{found}")
    for reason, count in found.about.skipped.items():
        tell(f"skipped: {reason} ({count:,})")
    tell(f"open {out / 'report.html'}, or run")
    tell(f"    regard atlas show {out}")


@atlas.command()
@one_line_errors
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME.atlas", help="Output folder of a survey.")
    ],
    top: Annotated[int, typer.Option(min=1, help="Number of heads per label.")] = 5,
) -> None:
    """Print the heads of a survey by label, and the best ones per relation.

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
        raise ValueError(f"--model must be a text encoder or decoder; {model} takes {loaded.kind}")
    return loaded.model
