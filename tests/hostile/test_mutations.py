"""A recording from a stranger is refused in one line or answered right, whatever is in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.mutations import MUTATIONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are those of Linux"),
]


def test_every_mutation_is_refused_in_one_line_or_answered_right(tmp_path: Path) -> None:
    assert len(MUTATIONS) >= 200
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hostile.worker", str(tmp_path)],
        capture_output=True,
        text=True,
        env={**__import__("os").environ, "MALLOC_ARENA_MAX": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    good, *mutated = map(json.loads, ran.stdout.splitlines())
