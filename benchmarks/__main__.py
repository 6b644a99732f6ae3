"""Run the benchmarks, keep what they found, and write the tables that show it.

    python -m benchmarks                run all, which takes an hour or two
    python -m benchmarks attend watch   run these
    python -m benchmarks --write        run none: write the tables from what is kept

Each runs in a process of its own. What it found is kept in `benchmarks/results/NAME.json`, with the
machine and the versions, and is shown by `docs/reference/benchmarks.md`, by README and by guides.
One that fails leaves what was kept before, and the exit code is 1 in the end.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from typing import Any

from benchmarks import BENCHMARKS, _pages, _results
from benchmarks._measure import Figure, introduce, report
from benchmarks._results import ROOT, Result, by_name, figure_of


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parsed(arguments)
    failed = [] if asked.write else [name for name in asked.names if not _run_and_keep(name)]
    try:
        changed = _pages.write(_results.kept())
    except ValueError as error:
        print(f"the tables could not be written: {error}", file=sys.stderr)
        return 1
    for page in changed:
        print(f"written: {page.relative_to(ROOT)}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=about)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"run only some of: {', '.join(BENCHMARKS)}"
    )
    parser.add_argument(
        "--write", action="store_true", help="run none, and write the tables from what is kept"
    )
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.names if name not in BENCHMARKS]:
        parser.error(f"NAME must be one of {', '.join(BENCHMARKS)}, got {unknown[0]}")
    if asked.write and asked.names:
        parser.error("--write runs no benchmark, so it takes no NAME")
    asked.names = asked.names or list(BENCHMARKS)
    return asked


def _run_and_keep(name: str) -> bool:
    print(f"\n{name}", flush=True)
    try:
        result = run(command(name))
    except (RuntimeError, ValueError) as error:
        print(f"{name} failed: {error}; what was kept before is left as it is", file=sys.stderr)
        return False
    path = _results.keep(name, result)
    print(f"kept in {path.relative_to(ROOT)}, after {result.seconds} s", flush=True)
    return True


def command(name: str) -> list[str]:
    """Return what runs a benchmark."""
    picture = BENCHMARKS[name]
    return ["-m", f"benchmarks.{name}", "--json", *(["--figure", picture] if picture else [])]


def run(arguments: list[str]) -> Result:
    """Run a benchmark, and print its figures as they come.

    Args:
        arguments: for Python; what then runs prints JSON, a line on machine and versions, and a
            line a figure. Other lines, which libraries may print, go to stderr.

    Raises:
        RuntimeError: it failed, or found nothing.
        ValueError: two of its figures have the same name.
    """
    about: dict[str, Any] = {}
    figures: list[Figure] = []
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = _object(line)
            if "machine" in found:
                about = {key: found[key] for key in ("machine", "versions")}
                introduce(**about, as_json=False)
            elif "value" in found:
                figures.append(figure_of(found))
                report(figures[-1], as_json=False)
            else:
                print(line, end="", file=sys.stderr)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}")
    if not about or not figures:
        raise RuntimeError("it printed no figures")
    return Result(
        command=" ".join(["python", *arguments]),
        date=date.today().isoformat(),
        seconds=round(time.monotonic() - start),
        figures=by_name(figures),
        **about,
    )


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
