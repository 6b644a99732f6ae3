"""A recording from a stranger is refused in one line or answered right, whatever is in it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.mutations import KINDS, MUTATIONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are those of Linux"),
]


# One in two, and one of each kind at least.
FIRST = {kind: name for name, kind in reversed(KINDS.items())}
SOME = [name for name in MUTATIONS if name in {*[*MUTATIONS][::2], *FIRST.values()}]
OTHERS = [name for name in MUTATIONS if name not in SOME]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(SOME, id="some"),
        pytest.param(OTHERS, id="the others", marks=pytest.mark.thorough),
    ],
)
def test_a_mutation_is_refused_in_one_line_or_answered_right(
    names: list[str], tmp_path: Path
) -> None:
    assert len(names) >= 240
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hostile.worker", str(tmp_path), *names],
        capture_output=True,
        text=True,
        # The address space is limited, of which every thread would take much for an arena.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    good, *mutated = map(json.loads, ran.stdout.splitlines())
    assert [one["name"] for one in mutated] == names
    assert {how for how, _ in good["looks"].values()} == {"answered"}
    wrong = [fault for one in mutated for fault in _faults(one, good)]
    assert not wrong, "\n".join(wrong)
    refused = [one for one in mutated if any(how == "refused" for how, _ in one["looks"].values())]
    assert len(refused) > 0.8 * len(mutated)


def _faults(outcome: dict[str, Any], good: dict[str, Any]) -> list[str]:
    """Say what is neither refused nor right of a mutation."""
    name = outcome["name"]
    if outcome["status"]:
        return [f"{name}: ended by {outcome['status']} after {list(outcome['looks'])[-1:]}"]
    # Who makes a digest of what was changed has made another recording.
    same = outcome["looks"]["open"] == good["looks"]["open"]
    found: list[str] = []
    for look, (how, answer) in outcome["looks"].items():
        if how == "fault":
            found.append(f"{name}: {look}: {answer}")
        elif how == "answered" and same and answer != good["looks"][look][1]:
            found.append(f"{name}: {look} is another answer")
    return found
