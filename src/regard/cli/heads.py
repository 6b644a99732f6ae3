"""`regard heads`: a table of all heads."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch.nn.utils.rnn import pad_sequence

from regard.calls.call import stack_of
from regard.calls.measures import MEASURES, measures
from regard.cli.console import one_line_errors, out, print_json, tell
from regard.cli.next_token import next_token
from regard.cli.options import (
    AgainstOption,
    DeviceOption,
    EffectOfOption,
    JsonOption,
    LayerOption,
    ModelOption,
    PickleOption,
    RemoteCodeOption,
    TargetOption,
)
from regard.cli.running import layer_number, watched
from regard.cli.saving import FIGURES, check_ending
from regard.views.numbers import in_figures

_BY_LAYER, _EFFECT = "layer", "effect"


@one_line_errors
def heads(
    text: Annotated[
        str, typer.Argument(metavar="TEXT|FILE", help="Text, text file, or - for stdin.")
    ],
    model: ModelOption,
    layer: LayerOption = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help=f"Sort by: {_BY_LAYER}, {', '.join(MEASURES)}; with --effect-of: {_EFFECT}.",
        ),
    ] = None,
    ascending: Annotated[bool, typer.Option(help="Sort in ascending order.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Number of heads to print.")] = None,
    target: TargetOption = None,
    effect_of: EffectOfOption = None,
    against: AgainstOption = None,
    save_to: Annotated[
        Path | None,
        typer.Option(
            "--save",
            "-s",
            metavar="FILE",
            help="Write a figure (.svg .pdf .png) of all heads, coloured by --sort.",
        ),
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "cpu",
    allow_pickle: PickleOption = False,
    allow_remote_code: RemoteCodeOption = False,
) -> None:
    """List all heads with entropy, distance, and weight on the first, previous and own token.

    **Examples**

        regard heads chapter.txt -m ./smollm2 --sort previous --top 10

        regard heads "An apple a day" -m ./minilm --json | jq '.[0]'

        regard heads chapter.txt -m ./smollm2 --sort first --save heads.svg

        regard heads "The capital of France is" -m ./smollm2 --effect-of " Paris" --top 10
    """
    effect = next_token(effect_of, against)
    names = list(MEASURES) if effect is None else [_EFFECT, *MEASURES]
    sort = sort or (_BY_LAYER if effect is None else _EFFECT)
    if sort not in (_BY_LAYER, *names):
        raise ValueError(f"--sort must be one of {_BY_LAYER}, {', '.join(names)}, got {sort}")
    if save_to is not None:
        check_ending(save_to, FIGURES)
    _, _, found = watched(
        text,
        model,
        target=target,
        layer=layer,
        effect=effect,
        device=device,
        allow_pickle=allow_pickle,
        allow_remote_code=allow_remote_code,
    )
    measured: dict[str, Any] = {}
    if effect is not None:
        measured[_EFFECT] = [call.checked_gradient.by_head() for call in found.seen]
    measured |= measures(found.seen)
    if save_to is not None:
        from regard.views import heads as figure_of

        values = None if sort == _BY_LAYER else sort
        label = f"effect on {effect}" if sort == _EFFECT else None
        if sort == _EFFECT:
            values = pad_sequence(measured[_EFFECT], batch_first=True, padding_value=torch.nan)
        figure_of(found.seen, values, label=label).savefig(save_to)
        tell(str(save_to))
        return
    rows: list[dict[str, Any]] = [
        {
            "layer": layer_number(call),
            "head": head,
            "module": call.module,
            "looks": call.kind,
            **{name: _number(values[place][head].item()) for name, values in measured.items()},
        }
        for place, call in enumerate(found.seen)
        for head in range(call.heads)
    ]
    if sort != _BY_LAYER:
        known = [row for row in rows if row[sort] is not None]
        unknown = [row for row in rows if row[sort] is None]
        rows = sorted(known, key=lambda row: row[sort], reverse=not ascending) + unknown
    rows = rows[:top]
    if as_json:
        print_json(rows)
    else:
        if effect is not None:
            said = f"{effect} is {found.logit:+.3f}; effect: what it would lose without the head"
            out().print(f"{said}, by its gradient", markup=False)
        out().print(_table(rows, names, sort))


def _number(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _table(rows: list[dict[str, Any]], names: Sequence[str], sort: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
    table.add_column("layer.head", justify="right", style="bold")
    cross = any(row["looks"] == "cross" for row in rows)
    if cross:
        table.add_column("in")
    for name in names:
        measure = MEASURES.get(name)
        unit = "" if measure is None or measure.unit == "share" else f" ({measure.unit})"
        shown = name if measure is None else measure.name
        table.add_column(f"{shown}{unit}", justify="right", style="cyan" if name == sort else "")
    for row in rows:
        numbers = ["—" if row[name] is None else _shown(name, row[name]) for name in names]
        looks = [stack_of(row["module"], row["looks"])] if cross else []
        table.add_row(f"{row['layer']}.{row['head']}", *looks, *numbers)
    return table


def _shown(name: str, value: float) -> str:
    if name == _EFFECT:
        return f"{value:+.3f}"
    return in_figures(value, digits=1 if name == "distance" else 3)
