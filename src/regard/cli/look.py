"""`regard look`: the strongest keys of a token in each head."""

import webbrowser
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from regard.calls.texts import TextLayer
from regard.calls.tokens import label, readable
from regard.cli.choosing import Chosen, asked_token, chosen_token
from regard.cli.console import one_line_errors, out, print_json, tell
from regard.cli.head_ranking import RankedHead, ranked_heads
from regard.cli.loading import Loaded
from regard.cli.next_token import NextToken, next_token
from regard.cli.options import (
    AgainstOption,
    DeviceOption,
    EffectOfOption,
    HeadOption,
    JsonOption,
    LayerOption,
    ModelOption,
    PickleOption,
    RemoteCodeOption,
    SaveOption,
    TargetOption,
)
from regard.cli.running import Run, layer_number, watched
from regard.cli.saving import FIGURES, check_ending, save
from regard.views.numbers import bar, in_figures

_AROUND = 12
"""Number of tokens printed on either side of the query token."""


@one_line_errors
def look(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE", help="Text, text file, image for a ViT, or - for stdin."
        ),
    ],
    model: ModelOption,
    layer: LayerOption = None,
    head: HeadOption = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", "-t", help="Query token: its text or its position, as it, 7 or @7."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of heads, and of keys per head.")] = 8,
    target: TargetOption = None,
    effect_of: EffectOfOption = None,
    against: AgainstOption = None,
    save_to: SaveOption = None,
    opened: Annotated[
        bool, typer.Option("--open", help="Open the saved file in the browser.")
    ] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "cpu",
    allow_pickle: PickleOption = False,
    allow_remote_code: RemoteCodeOption = False,
) -> None:
    """Print the strongest keys of a token in each head, heads with the sharpest focus first.

    `--save` writes a page of all tokens, layers and heads, or a figure.

    **Examples**

        regard look "The animal didn't cross the street because it was too tired" -m ./minilm -t it

        regard look chapter.txt -m ./smollm2 --save chapter.html

        regard look "An apple a day" -m ./smollm2 --layer 18 --head 6 --save head.svg

        regard look cat.png -m ./vit --save where.png

        regard look "The capital of France is" -m ./smollm2 --effect-of " Paris" --against " Rome"
    """
    effect = next_token(effect_of, against)
    if save_to is not None:
        check_ending(save_to, (".html", *FIGURES) if effect is None else (".html",))
    elif opened:
        raise ValueError("--open needs a file: add --save")
    if save_to is not None and as_json:
        raise ValueError("--json and --save can't be combined: leave one out")
    if save_to is not None and save_to.suffix.lower() == ".html":
        _check_page(head, token)
    loaded, given, found = watched(
        text,
        model,
        target=target,
        layer=layer,
        effect=effect,
        device=device,
        allow_pickle=allow_pickle,
        allow_remote_code=allow_remote_code,
    )
    layers = _chosen(found, head)
    if save_to is not None:
        asked = None if token is None else asked_token(token, readable(found.tokens))
        number = None if asked is None else asked.number
        path = save(
            save_to,
            given,
            found,
            found.seen,
            loaded,
            layer=layer,
            head=head,
            token=number,
            effect=effect,
        )
        if asked is not None and asked.why:
            tell(f"token {asked.number}: {asked.why}")
        tell(f"{path} ({path.stat().st_size / 1e3:,.0f} kB)")
        if opened:
            webbrowser.open(path.resolve().as_uri())
        return
    if effect is None:
        chosen = chosen_token(layers, token, head=head)
    else:
        # Effects are those on what the last token predicts.
        chosen = asked_token(token or "@-1", readable(found.tokens))
    heads = ranked_heads(layers, chosen.number, head=head, top=top, effects=effect is not None)
    if as_json:
        print_json(_as_data(found, heads, chosen, effect))
    else:
        _print(found, loaded, heads, chosen, top, effect)


def _check_page(head: int | None, token: str | None) -> None:
    """Raise ValueError if a head or token is chosen for a page."""
    for name, chosen in (("--head", head), ("--token", token)):
        if chosen is not None:
            raise ValueError(
                f"a page shows all heads and tokens: leave {name} out, or save a figure "
                f"({' '.join(FIGURES)})"
            )


def _chosen(found: Run, head: int | None) -> list[TextLayer]:
    """Return the layers to show: those of the decoder, if there is one.

    Raises:
        ValueError: there is no such head, or no such layer.
    """
    target = 0 if found.source is None else 1
    layers = [one for one in found.layers_of(found.seen) if one.queries.text == target]
    if not layers:
        raise ValueError("--layer must be a layer of the decoder")
    most = max(layer.call.heads for layer in layers)
    if head is not None and not 0 <= head < most:
        raise ValueError(f"--head must be from 0 to {most - 1}, got {head}")
    return layers


def _print(
    found: Run,
    loaded: Loaded,
    heads: list[RankedHead],
    chosen: Chosen,
    top: int,
    effect: NextToken | None,
) -> None:
    console, token = out(), chosen.number
    console.print(_in_context(found.tokens, token))
    shown = label(readable(found.tokens)[token])
    place = f"(token {token} of {len(found.tokens)})"
    if effect is None:
        console.print(f"Where “{shown}” looks in {loaded.name} {place}", markup=False)
    else:
        console.print(f"{loaded.name}: {effect} is {found.logit:+.3f}", markup=False)
        console.print(f"Effects on it of the looks of “{shown}” {place}", markup=False)
    if chosen.why:
        console.print(f"Token {token}: {chosen.why}", style="dim", markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    cross = any(one.layer.call.kind == "cross" for one in heads)
    table.add_column("layer.head", justify="right", style="bold", no_wrap=True)
    if cross:
        table.add_column("", no_wrap=True)
    table.add_column("looks at", overflow="fold")
    largest = 1.0 if effect is None else max((one.strength for one in heads), default=0.0)
    for one in heads[:top]:
        call = one.layer.call
        names = [f"{layer_number(call)}.{one.head}"]
        names += ["source" if call.kind == "cross" else "itself"] if cross else []
        table.add_row(*names, _keys(one, largest, effect is not None, wide=len(heads) == 1))
    console.print(table)
    if len(heads) > top:
        console.print(f"[dim]{len(heads) - top} other heads: --top {len(heads)}[/dim]")


def _keys(one: RankedHead, largest: float, signed: bool, *, wide: bool) -> Text:
    """Return the strongest keys of a head, with weights or effects up to the largest by size."""
    text, pieces = Text(), one.layer.keys.pieces
    for key, weight in zip(one.keys, one.weights, strict=True):
        size = abs(weight) / largest if largest else 0.0
        if size < 0.005 and not wide:
            continue
        style = "bold" if size >= 0.2 else "" if size >= 0.05 else "dim"
        if wide:
            number = f"{weight:+.3f}" if signed else in_figures(weight)
            text.append(f"{label(pieces[key]):<16}", style)
            text.append(f"{key:>6}  {number:>6}  {bar(size, 24)}\n")
        else:
            number = f"{weight:+.3f}" if signed else f"{weight:.2f}"
            text.append(label(pieces[key]), style)
            text.append(f"@{key} ", "dim")
            text.append(f"{number}   ", "cyan" if size >= 0.05 else "dim")
    text.rstrip()
    return text


def _in_context(tokens: list[str], token: int) -> Text:
    """Return the text around a token, which is highlighted."""
    pieces = readable(tokens)
    first, last = max(0, token - _AROUND), min(len(pieces), token + _AROUND + 1)
    text = Text("… " if first else "")
    for place in range(first, last):
        piece = "".join(char if char.isprintable() else " " for char in pieces[place])
        text.append(piece, "bold reverse" if place == token else "")
    text.append(" …" if last < len(pieces) else "")
    return text


def _as_data(
    found: Run, heads: list[RankedHead], chosen: Chosen, effect: NextToken | None
) -> dict[str, Any]:
    name = "weight" if effect is None else "effect"
    pieces = readable(found.tokens)
    listed: list[dict[str, Any]] = []
    for one in heads:
        call, keys = one.layer.call, one.layer.keys.pieces
        listed.append(
            {
                "layer": layer_number(call),
                "head": one.head,
                "module": call.module,
                "looks": call.kind,
                "strength": one.strength,
                "keys": [
                    {"token": keys[key], "position": key, name: weight}
                    for key, weight in zip(one.keys, one.weights, strict=True)
                ],
            }
        )
    return {
        **({} if effect is None else {"target": str(effect), "logit": found.logit}),
        "token": pieces[chosen.number],
        "position": chosen.number,
        "chosen": chosen.why,
        "tokens": pieces,
        "heads": listed,
    }
