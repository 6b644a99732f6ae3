"""`regard explain`: attention for one token, step by step."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated

import torch
import typer
from rich.markup import escape
from rich.table import Table

from regard.calls.tokens import label
from regard.cli.choosing import Chosen, chosen_token
from regard.cli.console import one_line_errors, out, print_json, tell
from regard.cli.head_ranking import main_call
from regard.cli.options import (
    DeviceOption,
    JsonOption,
    PickleOption,
    RemoteCodeOption,
    SaveOption,
    TargetOption,
)
from regard.cli.running import Run, watched
from regard.cli.saving import FIGURES, check_ending, title_of
from regard.matrix import AttentionMatrix
from regard.views import Page, page, steps
from regard.views.explain import Explanation, explain_call, worked_example
from regard.views.explain.explanation import vector
from regard.views.explain.worked_example import ASKING, SENTENCE
from regard.views.numbers import in_figures


@one_line_errors
def explain(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT|FILE]", help="Text for --model; by default a worked example."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", "-t", help="Query token: its text or its position, as it, 7 or @7."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="DIR|FILE.gguf|NAME",
            help="Model to explain; by default the vectors of a worked example.",
        ),
    ] = None,
    layer: Annotated[int, typer.Option("--layer", "-l", help="Layer, counted from 0.")] = 0,
    head: Annotated[int, typer.Option("--head", help="Head, counted from 0.")] = 0,
    top: Annotated[int, typer.Option(min=1, help="Number of keys to print.")] = 12,
    scaled: Annotated[
        bool, typer.Option(help="Divide scores by √d; --no-scaled is for the worked example.")
    ] = True,
    target: TargetOption = None,
    save_to: SaveOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "cpu",
    allow_pickle: PickleOption = False,
    allow_remote_code: RemoteCodeOption = False,
) -> None:
    """Compute attention for one token, step by step: vectors, scores, scaling, softmax, sum.

    **Examples**

        regard explain

        regard explain --token animal --no-scaled

        regard explain "The cat sat on the mat" -m ./minilm --token cat --layer 2 --head 8

        regard explain "The cat sat" -m ./opus-mt --target "Die Katze saß" --token Katze
    """
    if save_to is not None:
        check_ending(save_to, (".html", *FIGURES))
    if model is None:
        if text is not None:
            raise ValueError("TEXT needs a model: add --model")
        if target is not None:
            raise ValueError("--target needs an encoder–decoder: add --model")
        found = worked_example(token or ASKING, scaled=scaled)
        page_of = _page_of_example(found)
        sentence, chosen, about = SENTENCE, None, ""
    else:
        loaded, given, run = watched(
            SENTENCE if text is None else text,
            model,
            target=target,
            layer=layer,
            values=True,
            device=device,
            allow_pickle=allow_pickle,
            allow_remote_code=allow_remote_code,
        )
        found, chosen, page_of = _in_model(run, token, head)
        sentence, about = str(given), loaded.name
    if save_to is not None:
        if save_to.suffix.lower() == ".html":
            page_of(title=title_of(sentence), about=about, explanation=found).save(save_to)
        else:
            steps(found, top=top).savefig(save_to)
        if chosen is not None and chosen.why:
            tell(f"token {chosen.number}: {chosen.why}")
        tell(str(save_to))
    elif as_json:
        print_json(found.as_data())
    else:
        _print(found, sentence, top, chosen)


def _page_of_example(found: Explanation) -> Callable[..., Page]:
    weights = found.weights.float()[None, None, None]
    place = torch.tensor([found.tokens.index(found.asking)])
    return partial(page, AttentionMatrix.from_weights(weights, positions=place), found.tokens)


def _in_model(
    run: Run, token: str | None, head: int
) -> tuple[Explanation, Chosen, Callable[..., Page]]:
    """Return an explanation, its token, and a function that makes a page of its row."""
    layer = run.layers_of([main_call(run.seen)])[0]
    call = layer.call
    if not 0 <= head < call.heads:
        raise ValueError(f"--head must be from 0 to {call.heads - 1}, got {head}")
    chosen = chosen_token([layer], token, head=head)
    number = chosen.number
    asking = label(layer.queries.pieces[number])
    found = explain_call(call, layer.keys.pieces, number, head=head, asking=asking)
    row = call.matrix[:1, head : head + 1, number : number + 1]
    shown = replace(call, view=row.view)
    return found, chosen, partial(page, shown, run.tokens, source=run.source)


def _steps(found: Explanation) -> Iterator[str]:
    """Yield what is computed, step by step, as far as its numbers are known."""
    asking = escape(found.asking)
    if found.query is None:
        yield f"[bold]Weights[/bold] of “{asking}”: a softmax that the model computes itself"
    else:
        yield f"[bold]The query[/bold] of “{asking}”: {escape(vector(found.query))}"
        yield "[bold]Scores[/bold]: the dot product of the query and each key"
        yield f"[bold]Scaling[/bold]: each score times {found.scale:.3f}"
        yield "[bold]Softmax[/bold]: exp of each, divided by their sum"
    if found.values is not None:
        yield "[bold]The sum[/bold] of the values, each times its weight"


def _print(found: Explanation, sentence: str, top: int, chosen: Chosen | None) -> None:
    console = out()
    console.print(f"{sentence[:200]}\n", markup=False)
    if chosen is not None:
        why = f": {chosen.why}" if chosen.why else ""
        console.print(f"Token {chosen.number}{why}\n", style="dim", markup=False)
    for number, step in enumerate(_steps(found), start=1):
        console.print(f"{number}  {step}")
    console.print()
    numbers = {"score": found.scores, "scaled": found.scaled, "weight": found.weights}
    numbers = {name: one for name, one in numbers.items() if one is not None}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("token", style="bold")
    if found.keys is not None:
        table.add_column("key")
    for name in numbers:
        table.add_column(name, justify="right", style="cyan" if name == "weight" else "")
    if found.values is not None:
        table.add_column("value")
        table.add_column("weight × value")
    for place in found.strongest(top):
        weight = found.weights[place]
        cells = [found.tokens[place]]
        if found.keys is not None:
            cells.append(vector(found.keys[place]))
        cells += [f"{x[place]:.3f}" for name, x in numbers.items() if name != "weight"]
        cells.append(in_figures(weight.item()))
        if found.values is not None:
            value = found.values[place]
            cells += [vector(value), vector(weight * value)]
        table.add_row(*map(escape, cells))
    if found.output is not None:
        total = found.weights.sum().item()
        table.add_section()
        cells = ["sum", "", "", "", f"{total:.3f}", "", vector(found.output)]
        table.add_row(*map(escape, cells), style="bold")
    console.print(table)
    if len(found.tokens) > top:
        console.print(
            f"[dim]{len(found.tokens) - top} weaker ones: --top {len(found.tokens)}[/dim]"
        )
    for note in found.notes:
        console.print(f"\n{note}", markup=False)
