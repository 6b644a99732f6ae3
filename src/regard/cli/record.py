"""`regard record`: write the attention of a run to disk."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.console import one_line_errors, tell
from regard.cli.next_token import next_token
from regard.cli.options import (
    AgainstOption,
    DeviceOption,
    EffectOfOption,
    ModelOption,
    PickleOption,
    RemoteCodeOption,
    TargetOption,
)
from regard.cli.running import watched


class Kept(StrEnum):
    """Dtypes for stored queries and keys."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


@one_line_errors
def record(
    text: Annotated[
        str, typer.Argument(metavar="TEXT|FILE", help="Text, text file, or - for stdin.")
    ],
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="NAME.regard", help="Output folder.")],
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Record only the first N tokens."),
    ] = None,
    dtype: Annotated[
        Kept | None,
        typer.Option(
            help="Store queries and keys in this dtype; the error is printed.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the recording.")] = None,
    target: TargetOption = None,
    effect_of: EffectOfOption = None,
    against: AgainstOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing recording.")
    ] = False,
    device: DeviceOption = "cpu",
    allow_pickle: PickleOption = False,
    allow_remote_code: RemoteCodeOption = False,
) -> None:
    """Run a model over a text and write its attention to disk, with maps of every head.

    Open it with `regard map`. If interrupted, run it again: finished layers are kept.

    **Examples**

        regard record moby-dick.txt -m ./smollm2 --tokens 8192 --out moby-dick.regard

        regard map moby-dick.regard

        regard record facts.txt -m ./smollm2 --effect-of " Paris" --against " Rome" -o facts.regard
    """
    effect = next_token(effect_of, against)
    try:
        from regard.recording import save
    except ImportError as error:
        raise ImportError(f'recordings need zarr: pip install "regard[map]" ({error})') from error
    if out.exists() and not overwrite:
        raise ValueError(f"--out {out} exists: choose another name, or add --overwrite")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}")
    loaded, given, found = watched(
        text,
        model,
        target=target,
        tokens=tokens,
        effect=effect,
        device=device,
        allow_pickle=allow_pickle,
        allow_remote_code=allow_remote_code,
    )
    if not isinstance(given, str):
        raise ValueError(f"can't record an image, got {given}: use `regard look IMAGE --save`")
    texts: dict[str, Any] = {"text": given, "offsets": found.offsets}
    if found.source is not None:
        texts = {"source": found.source, "source_text": given}
    elif found.offsets is not None:
        texts["text"] = given[: max(stop for _, stop in found.offsets)]
    started = time.monotonic()
    recording = save(
        found.seen,
        out,
        tokens=found.tokens,
        model=loaded.name,
        title=title if title is not None else _title(text, given),
        target=None if effect is None else str(effect),
        dtype=None if dtype is None else dtype.value,
        overwrite=overwrite,
        **texts,
    )
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    took = time.monotonic() - started
    tell(f"{recording}")
    tell(f"{out}: {size / 1e6:,.0f} MB, written in {took:,.0f} s; open it with")
    tell(f"    regard map {out}")


def _title(text: str, given: str) -> str:
    if text != given and text != "-":
        return Path(text).stem
    words = " ".join(given.split())
    return words if len(words) <= 60 else f"{words[:59]}…"
