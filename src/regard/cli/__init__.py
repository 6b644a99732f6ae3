"""The command `regard`: a file for each command."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from regard.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit(f'the command needs {error.name}: pip install "regard[cli]"')
    app()


__all__ = ["main"]
