"""``import regard`` loads nothing; its names load torch and the lower floors only, and soon."""

import builtins
import compileall
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest

import regard

pytestmark = pytest.mark.processes

OPTIONAL = (
    "conllu",
    "fastapi",
    "fsspec",
    "matplotlib",
    "networkx",
    "pandas",
    "PIL",
    "pyarrow",
    "pydantic",
    "ray",
    "rich",
    "transformers",
    "typer",
    "uvicorn",
    "zarr",
)

LIST_OPTIONAL = f"""
import sys
import regard
assert "torch" not in sys.modules
regard.attend, regard.AttentionMatrix, regard.causal, regard.watch
print(*(name for name in {OPTIONAL!r} if name in sys.modules))
"""

TIME_IMPORTS = """
import time
start = time.process_time()
import torch
between = time.process_time()
from regard import AttentionMatrix, attend, causal, watch
end = time.process_time()
print(between - start, end - between)
"""

LIST_SYMBOLIC = """
import sys
import torch
import regard

x = torch.randn(1, 2, 300, 16)
pattern = regard.causal() & regard.window(before=20)
regard.attend(x, x, x, pattern=pattern)
A = regard.AttentionMatrix(x, x, pattern=pattern)
A[0, 1, 200], A.rows([7]), A @ x
layer = torch.nn.TransformerEncoderLayer(32, nhead=4, batch_first=True).eval()
with regard.watch(layer) as seen:
    layer(torch.randn(1, 10, 32))
print("sympy" in sys.modules)
"""


IMPORT_ALL = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None
import regard
from regard import *
print(open is __builtins__.open, sorted(name for name in regard.__all__ if name not in globals()))
"""


def test_import_loads_no_optional_dependency(run_python: Callable[..., str]) -> None:
    assert run_python("-c", LIST_OPTIONAL).split() == []


def test_nothing_loads_symbolic_shapes(run_python: Callable[..., str]) -> None:
    # torch does for some of its smallest functions, and a first call waits for it.
    assert run_python("-c", LIST_SYMBOLIC).strip() == "False"


def test_import_takes_little_longer_than_torch(run_python: Callable[..., str]) -> None:
    # As pip leaves it: even where Python is told not to write bytecode.
    compileall.compile_dir(Path(regard.__file__).parent, quiet=1)
    torch_seconds, regard_seconds = map(float, run_python("-c", TIME_IMPORTS).split())
    assert regard_seconds <= torch_seconds / 4


def test_all_of_it_can_be_completed() -> None:
    assert {*regard.__all__, "open", "save"} <= set(dir(regard))
    assert "Any" not in dir(regard)


def test_all_of_it_can_be_imported_without_extras(run_python: Callable[..., str]) -> None:
    assert run_python("-c", IMPORT_ALL).strip() == "True []"


def test_an_import_of_everything_hides_no_builtin() -> None:
    rooms = [one.name for one in pkgutil.walk_packages(regard.__path__, "regard.") if one.ispkg]
    for room in ("regard", *rooms):
        exported = getattr(importlib.import_module(room), "__all__", [])
        assert not set(exported) & set(dir(builtins)), room
