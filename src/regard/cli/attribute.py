"""`regard attribute`: which passages of a prompt an answer used."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape
from rich.table import Table

from regard.attribution import Attribution, HiddenPassages
from regard.attribution import attribute as score
from regard.attribution.ranking import largest_value, left_out, passage_rows, strongest
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
    console = out()
    console.print(f"answer: {found.answer.strip()}", markup=False)
    console.print(f"log-probability {found.log_prob:.2f}; scores by {found.how}", style="dim")
    for note in found.notes:
        console.print(note, style="dim", markup=False)

    rows = passage_rows(found.scores, checked)
    shown, largest = strongest(rows, top), largest_value(rows)
    disagrees = any(row.disagreement for row in rows)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("score", justify="right", style="bold", no_wrap=True)
    if checked is not None:
        table.add_column("exact", justify="right", no_wrap=True)
    if disagrees:
        table.add_column("", style="yellow", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("passage", overflow="ellipsis", no_wrap=True)
    for row in shown:
        cells = [f"{row.score:+.3f}"]
        if checked is not None:
            cells.append("" if row.exact is None else f"{row.exact:+.3f}")
        if disagrees:
            cells.append(row.disagreement)
        cells.append(bar(abs(row.best_known) / largest))
        cells.append(" ".join(found.passages[row.number].text.split()))
        table.add_row(*map(escape, cells))
    console.print(table)

    if checked is not None:
        console.print(f"Spearman {checked.spearman:.2f}", style="dim")
    if others := left_out(rows, shown):
        console.print(f"[dim]{others}: --top {len(found.passages)}[/dim]")


def _as_data(found: Attribution, checked: HiddenPassages | None) -> dict[str, Any]:
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
                "score": row.score,
                "exact": row.exact,
                "disagreement": row.disagreement or None,
            }
            for passage, row in zip(
                found.passages, passage_rows(found.scores, checked), strict=True
            )
        ],
    }
