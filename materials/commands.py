"""Programs in another process."""

import os
import subprocess
import sys


def run_python(*arguments: str, failure: str, **environment: str) -> None:
    """Run this Python in a process of its own; arguments as for `run`."""
    run(sys.executable, *arguments, failure=failure, **environment)


def run(*command: str, failure: str, **environment: str) -> None:
    """Run a program in a process of its own, silently unless it fails.

    Args:
        *command: the program and its arguments.
        failure: what to say if it fails, before what the process itself said.
        **environment: variables to add.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise RuntimeError(f"{failure}\n{command[0]} is not installed") from error
    if done.returncode:
        raise RuntimeError(f"{failure}\n{done.stderr}")
