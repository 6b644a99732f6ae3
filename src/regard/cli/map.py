"""`regard map`: recordings in the browser, from the whole text down to one pair of tokens."""

import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli.console import one_line_errors, tell


@one_line_errors
def map_recordings(
    recordings: Annotated[
        list[str],
        typer.Argument(metavar="RECORDING…", help="Recordings: folders, or URLs of such."),
    ],
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="The port; by default 8080 or the next free one."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen at. Other than this machine's own, whoever has the link "
            "can open the map from elsewhere.",
        ),
    ] = "127.0.0.1",
    opened: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the map in the browser.")
    ] = True,
) -> None:
    """Open a map of every head of recordings: pan, zoom, search, compare. Ctrl-C ends it.

    **Examples**

        regard map book.regard

        regard map book.regard other.regard --port 9000 --no-open

        regard map book.regard --host 0.0.0.0
    """
    from regard.server import serve

    found = [regard.open(where) for where in recordings]

    def ready(link: str) -> None:
        typer.echo(link)
        if host in ("0.0.0.0", "::"):
            tell("whoever has this link can open the map; it is not encrypted on its way")
        tell("Ctrl-C ends it")
        if opened:
            page = entry(link, Path(folder))
            # A browser in the terminal would hold up the server until it is closed.
            threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()

    # Nobody else may look into such a folder.
    with tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:
        serve(found, host=host, port=port, ready=ready)


def entry(link: str, folder: Path) -> Path:
    """Write a page that goes on to a link; return its path.

    All users of a machine can see the arguments of a process, so that the link, which has a secret,
    is none of a browser that is started.
    """
    page = folder / "map.html"
    page.write_text(
        '<!doctype html>\n<meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="0;url={link}"><title>Regard</title>\n'
        f'<p><a href="{link}">Open the map</a></p>\n',
        encoding="utf-8",
    )
    return page
