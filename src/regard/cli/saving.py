"""Save calls as a page or a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.calls import AttentionCall
from regard.cli.head_ranking import main_call
from regard.cli.loading import Loaded
from regard.cli.next_token import NextToken
from regard.cli.running import Run
from regard.views import page
from regard.views.numbers import counted

FIGURES = (".svg", ".pdf", ".png")


def save(
    path: Path,
    text: str | Path,
    run: Run,
    calls: Sequence[AttentionCall],
    loaded: Loaded,
    *,
    layer: int | None,
    head: int | None,
    token: int | None,
    effect: NextToken | None = None,
) -> Path:
    """Write a page or a figure, by the file's suffix."""
    if path.suffix.lower() == ".html":
        return page(
            calls,
            run.tokens,
            source=run.source,
            title=f"{title_of(text)} – {loaded.name}",
            about=counted(len(run.tokens), "token"),
            effect_on=None if effect is None else str(effect),
        ).save(path)
    figure = _figure(run, calls, layer=layer, head=head, token=token)
    figure.savefig(path)
    return path


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Raise ValueError unless a file has one of the suffixes, and its folder exists."""
    if path.suffix.lower() not in endings:
        raise ValueError(f"--save must end with {', '.join(endings)}, got {path.name}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "is a folder" if path.is_dir() else f"needs an existing folder {path.parent}"
        raise ValueError(f"--save: {path} {what}")


def title_of(text: str | Path) -> str:
    """Return the title of a page: the start of a text, or the name of an image."""
    words = text.name if isinstance(text, Path) else " ".join(text.split())
    return words if len(words) <= 60 else f"{words[:59]}…"


def _figure(
    run: Run,
    calls: Sequence[AttentionCall],
    *,
    layer: int | None,
    head: int | None,
    token: int | None,
) -> Any:
    """Draw one head or all of them; over the image if there is one."""
    from regard.views import heads, heatmap, overlay

    if run.image is not None:
        return overlay(calls[-1], run.image, token=token or 0, head=head, patches=run.patches)
    if token is not None:
        raise ValueError("a figure of a text shows all tokens: leave out --token or --save")
    if layer is not None:
        shown = run.layers_of([main_call(calls)])[0]
        return heatmap(shown.call, shown.queries.pieces, key_tokens=shown.keys.pieces, head=head)
    if head is not None:
        raise ValueError("a figure of one head needs its layer: add --layer")

    return heads(calls)
