"""``import regard`` loads torch and the lower floors only, and soon."""

import subprocess
import sys

OPTIONAL = ("fastapi", "matplotlib", "pandas", "ray", "transformers", "zarr")

LIST_OPTIONAL = f"""
import sys
import regard
print(*(name for name in {OPTIONAL!r} if name in sys.modules))
"""

TIME_IMPORTS = """
import time
start = time.perf_counter()
import torch
between = time.perf_counter()
import regard
end = time.perf_counter()
print(between - start, end - between)
"""


def run_in_fresh_process(program: str) -> str:
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_import_loads_no_optional_dependency():
    assert run_in_fresh_process(LIST_OPTIONAL).split() == []


def test_import_takes_little_longer_than_torch():
    runs = [run_in_fresh_process(TIME_IMPORTS).split() for _ in range(5)]
    torch_seconds = min(float(run[0]) for run in runs)
    regard_seconds = min(float(run[1]) for run in runs)
    assert regard_seconds <= 0.3, (
        f"import regard took {regard_seconds:.2f} s after import torch ({torch_seconds:.2f} s)"
    )
