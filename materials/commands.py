"""Python in another process."""

import os
import subprocess
import sys


def run_python(*arguments: str, failure: str, **environment: str) -> None:
    """Run this Python in a process of its own, silently unless it fails.

    Args:
        *arguments: of the command line.
        failure: what to say if it fails, before what the process itself said.
        **environment: variables to add.
    """
    run = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"{failure}\n{run.stderr}")
