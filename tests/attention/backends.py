"""Backends and patterns to try them with, held against "reference" in float64."""

import torch

from regard import causal, columns, documents, global_at, neighbours, pairs, strided, window
from regard.positions import Bias, alibi, softcap
from tests.attention.cases import Case, lse_dtype, relative, results
from tests.attention.rounding import allowances, assert_close

BACKENDS = ["fused", "blocks"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]

SPARSE = {
    "window": causal() & window(before=9),
    "strided": strided(7) & causal(),
    "columns": columns(every=11) | window(before=2, after=2),
    "globals": global_at([0, 30]) | window(before=3, after=1),
    "pairs": causal() & ~pairs(queries=slice(20, None), keys=[3, 9, 17, 18, 50]),
    "graph": neighbours([(i, i * i % 67) for i in range(67)] + [(5, j) for j in range(20)]),
    "documents": documents(torch.arange(2 * 67).view(2, 67) // torch.tensor([[9], [40]]))
    & causal(),
    "no one": ~window(before=67, after=67),
}


def check(case: Case, backend: str, device: str = "cpu") -> None:
    """Assert that a backend gives what the reference gives, with and without log-sum-exp."""
    dtype = case.query.dtype
    for lse in (True, False):
        found = results(case.to(device), backend, lse=lse)
        found = {name: x.cpu() for name, x in found.items()}
        types = {name: x.dtype for name, x in found.items() if name != "grad of bias"}
        assert types.pop("lse", lse_dtype(dtype)) == lse_dtype(dtype)
        assert set(types.values()) == {dtype}
        exact = results(case.to(torch.float64), "reference", lse=lse)
        # PyTorch's attention takes a mask in the type of the query; ours in that of the sums.
        rounds_bias = (backend == "fused" and not lse) or device == "cuda"
        assert_close(found, exact, allowances(case, dtype, lse=lse, rounds_bias=rounds_bias))


def bias_named(name: str, heads: int) -> Bias | None:
    match name:
        case "alibi":
            return alibi(heads)
        case "relative":
            return relative(heads, torch.Generator().manual_seed(0), torch.float64)
        case "softcap":
            return softcap(1.5)
        case _:
            return None
