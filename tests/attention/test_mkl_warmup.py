"""The exponential is called once alone before threads share it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

CODE = """
import torch, regard
from regard.internals import warm_up_mkl
x = torch.randn(1, 1, 8, 4)
assert warm_up_mkl.cache_info().currsize == 0, "importing calls nothing"
{call}
assert warm_up_mkl.cache_info().currsize == 1
"""


@pytest.mark.parametrize(
    "call",
    [
        "regard.AttentionMatrix(x, x)",
        "regard.attend(x, x, x, backend='reference')",
        "regard.attend(x, x, x, pattern=regard.window(before=1), backend='blocks')",
    ],
)
def test_first_use(call: str) -> None:
    code = CODE.format(call=call)
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
