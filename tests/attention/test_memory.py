"""What is written down for scores stays small, however long the sequence."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
import regard
from benchmarks._measure import peak_bytes
from regard.positions import alibi, softcap

x = torch.randn(1, 8, {length}, 16, requires_grad=True)
bias = {bias}
short = x[:, :, :64]
regard.attend(short, short, short, bias=bias, backend="blocks").sum().backward()
before = peak_bytes()
regard.attend(x, x, x, bias=bias, backend="blocks").sum().backward()
print((peak_bytes() - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("bias", ["softcap(5.0)", "alibi(8)"])
def test_a_dense_matrix_is_never_whole(bias: str) -> None:
    # The scores of the whole matrix would be 512 MB, and softcap needs them several times over.
    program = PROGRAM.format(length=4096, bias=bias)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout) < 200
