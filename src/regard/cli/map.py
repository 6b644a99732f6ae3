"""`regard map`: recordings as a zoomable map in the browser."""

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
        typer.Argument(metavar="RECORDING…", help="Folders or URLs of recordings."),
    ],
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port; by default the first free one from 8080 on."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. Unless it is a loopback address, anyone with the link can "
            "open the map.",
        ),
    ] = "127.0.0.1",
    opened: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the map in the browser.")
    ] = True,
) -> None:
    """Serve recordings as a map of every head: pan, zoom, search, compare. Ctrl-C stops it.

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
            tell("anyone with this link can open the map; the connection is not encrypted")
        tell("press Ctrl-C to stop")
        if opened:
            page = entry(link, Path(folder))
            # In a thread, because a terminal browser would block the server.
            threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()

    # Only this user can read such a folder.
    with tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:
        serve(found, host=host, port=port, ready=ready)


def entry(link: str, folder: Path) -> Path:
    """Write a page that redirects to a link; return its path.

    All users of a machine can see the arguments of the browser, and the link contains a secret.
    """
    page = folder / "map.html"
    page.write_text(
        '<!doctype html>\n<meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="0;url={link}"><title>Regard</title>\n'
        f'<p><a href="{link}">Open the map</a></p>\n',
        encoding="utf-8",
    )
    return page
