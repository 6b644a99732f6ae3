"""The command `regard`: one file for each of its commands."""

import sys


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from regard.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit(f'the command needs {error.name}: pip install "regard[cli]"')
    app()


__all__ = ["main"]
