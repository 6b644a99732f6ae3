"""The benchmarks run as they are printed, and say what they found in JSON."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_attend_over_a_million_positions() -> None:
    command = [sys.executable, "-m", "benchmarks.attend", "--only", "million", "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = map(json.loads, finished.stdout.splitlines())
    assert (seconds["unit"], memory["unit"]) == ("s", "GB")
    # The inputs alone are 0.8 GB, and the output 0.27 GB: a process that held less saw nothing.
    assert 0.2 < memory["value"] < 4
    assert memory["reached"] is True
