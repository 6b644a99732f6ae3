"""`regard attribute`: which passages of a prompt an answer used."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape
from rich.table import Table

from regard.attribution import Attribution, HiddenPassages
from regard.attribution import attribute as score
from regard.attribution.ranking import best_known, left_out, listed
from regard.cli.console import doing, one_line_errors, out, print_json, tell
from regard.cli.loading import load
from regard.cli.options import DeviceOption, JsonOption, ModelOption, PickleOption, RemoteCodeOption
from regard.cli.reading import read_input
from regard.cli.saving import check_ending
from regard.views.numbers import bar


@one_line_errors
def attribute(
    prompt: Annotated[
        str, typer.Argument(metavar="TEXT|FILE", help="Prompt, text file, or - for stdin.")
    ],
    model: ModelOption,
    answer: Annotated[
        str | None,
        typer.Option(help="Text that follows the prompt; by default the model generates it."),
    ] = None,
    passages: Annotated[
        str, typer.Option(help="Split the prompt into: paragraphs, lines, sentences.")
    ] = "paragraphs",
    how: Annotated[
        str, typer.Option(help="Score by: effects, attention, leave-one-out.")
    ] = "effects",
    top: Annotated[
        int, typer.Option(min=1, help="Number of passages to print, the strongest of either sign.")
    ] = 10,
    verify: Annotated[
        int,
        typer.Option(
            min=0, help="Hide N of the strongest passages and N others, and compare the scores."
        ),
    ] = 0,
    save_to: Annotated[
        Path | None,
        typer.Option("--save", "-s", metavar="FILE", help="Write a page (.html)."),
    ] = None,
    each_token: Annotated[
        bool,
        typer.Option(
            "--each-token", help="Score passages for each token of the answer too, for the page."
        ),
    ] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "cpu",
    allow_pickle: PickleOption = False,
    allow_remote_code: RemoteCodeOption = False,
) -> None:
    """Rank the passages of a prompt by how much they support the answer.

    **Examples**

        regard attribute prompt.txt -m ./smollm2 --passages lines

        regard attribute prompt.txt -m ./smollm2 --answer " Paris" --verify 3

        regard attribute prompt.txt -m ./smollm2 --save used.html --each-token
    """
    if save_to is not None:
        check_ending(save_to, (".html",))
    given = read_input(prompt)
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"the prompt must be a non-empty text, got {prompt!r}")
    with doing(f"loading {model}"):
        loaded = load(
            model,
            device=device,
            generates=True,
            allow_pickle=allow_pickle,
            allow_remote_code=allow_remote_code,
        )
    with doing(f"running {loaded.name}"):
        found = score(
            loaded.model,
            loaded.prepare,
            given,
            answer,
            passages,
            how=cast(Any, how),
            each_token=each_token,
        )
    checked = found.verify(verify) if verify else None
    if as_json:
        print_json(_as_data(found, checked))
    else:
        _print(found, checked, top)
    if save_to is not None:
        path = found.save(save_to, about=loaded.name, checked=checked)
        tell(f"{path} ({path.stat().st_size / 1e3:,.0f} kB)")


def _print(found: Attribution, checked: HiddenPassages | None, top: int) -> None:
    console, exact = out(), _exact(checked)
    said = {} if checked is None else checked.disagreements
    console.print(f"answer: {found.answer.strip()}", markup=False)
    console.print(f"log-probability {found.log_prob:.2f}; scores by {found.how}", style="dim")
    for note in found.notes:
        console.print(note, style="dim", markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("score", justify="right", style="bold", no_wrap=True)
    if exact:
        table.add_column("exact", justify="right", no_wrap=True)
    if said:
        table.add_column("", style="yellow", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("passage", overflow="ellipsis", no_wrap=True)
    values = best_known(found.scores, checked)
    largest = max(float(values.abs().max()), 1e-12)
    shown = listed(values, top)
    for number in shown:
        cells = [f"{found.scores[number].item():+.3f}"]
        if exact:
            cells.append(f"{exact[number]:+.3f}" if number in exact else "")
        if said:
            cells.append(said.get(number, ""))
        cells.append(bar(abs(values[number].item()) / largest))
        cells.append(" ".join(found.passages[number].text.split()))
        table.add_row(*map(escape, cells))
    console.print(table)
    if checked is not None:
        console.print(f"Spearman {checked.spearman:.2f}", style="dim")
    if others := left_out(values, shown):
        console.print(f"[dim]{others}: --top {len(found.passages)}[/dim]")


def _as_data(found: Attribution, checked: HiddenPassages | None) -> dict[str, Any]:
    exact = _exact(checked)
    said = {} if checked is None else checked.disagreements
    return {
        "answer": found.answer,
        "log_prob": found.log_prob,
        "how": found.how,
        "checkpointed": found.checkpointed,
        "notes": found.notes,
        "passages": [
            {
                "text": passage.text,
                "start": passage.start,
                "stop": passage.stop,
                "score": score,
                "exact": exact.get(number),
                "disagreement": said.get(number),
            }
            for number, (passage, score) in enumerate(
                zip(found.passages, found.scores.tolist(), strict=True)
            )
        ],
    }


def _exact(checked: HiddenPassages | None) -> dict[int, float]:
    """Return the loss of log-probability for each hidden passage."""
    if checked is None:
        return {}
    return dict(zip(checked.passages, checked.exact.tolist(), strict=True))
