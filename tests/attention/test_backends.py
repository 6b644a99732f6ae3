"""Every backend means the same: "fused" and "blocks" held against "reference" in float64.

Tolerances come from `rounding`, which derives them from the dtype and the numbers at hand.
"""

import math
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import regard
from regard import causal, columns, documents, padding, window
from regard.attention import block_sparse, kernel_calls
from regard.patterns import Pattern
from regard.positions import Bias, alibi
from tests.attention.backends import BACKENDS, DTYPES, SPARSE, bias_named, check
from tests.attention.cases import DEVICES, Case, case_of, cases, results
from tests.attention.rounding import allowances, assert_close
from tests.strategies import fewer

ADDED = ("none", "alibi", "relative", "tensor")
"""The biases that "fused" takes."""


@pytest.mark.parametrize("device", DEVICES)
@given(strategies.data())
def test_blocks(device: str, data: strategies.DataObject) -> None:
    check(data.draw(cases(dtype=exact_on(device))), "blocks", device)


@pytest.mark.parametrize("device", DEVICES)
@given(strategies.data())
def test_fused(device: str, data: strategies.DataObject) -> None:
    check(data.draw(cases(dtype=exact_on(device), biased=ADDED)), "fused", device)


def exact_on(device: str) -> torch.dtype:
    """Return the finest dtype that the kernels of a device take."""
    return torch.float64 if device == "cpu" else torch.float32


@pytest.mark.parametrize("dtype", DTYPES)
@fewer
@given(strategies.data())
def test_blocks_in_lower_precision(dtype: torch.dtype, data: strategies.DataObject) -> None:
    check(data.draw(cases(dtype=dtype)), "blocks")


@pytest.mark.parametrize("dtype", DTYPES)
@fewer
@given(strategies.data())
def test_fused_in_lower_precision(dtype: torch.dtype, data: strategies.DataObject) -> None:
    check(data.draw(cases(dtype=dtype, biased=ADDED)), "fused")


@given(cases(), strategies.integers(1, 50), strategies.integers(1, 50), strategies.booleans())
def test_blocks_of_any_size(case: Case, forward: int, backward: int, chunked: bool) -> None:
    """However a sequence is cut, nothing changes beyond rounding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_sparse, "FORWARD_BLOCK", forward)
        patch.setattr(block_sparse, "BACKWARD_BLOCK", backward)
        if chunked:
            patch.setattr(kernel_calls, "_BYTES_AT_ONCE", {"cpu": 1})
        check(case, "blocks")


@pytest.mark.pairwise
@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("biased", ["no", "alibi", "relative", "softcap"])
def test_patterns_one_by_one(
    name: str, group: int, biased: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_sparse, "FORWARD_BLOCK", 13)
    monkeypatch.setattr(block_sparse, "BACKWARD_BLOCK", 17)
    monkeypatch.setattr(kernel_calls, "_BYTES_AT_ONCE", {"cpu": 20_000})
    bias = bias_named(biased, 2 * group)
    case = case_of(heads=2, group=group, queries=67, pattern=SPARSE[name], bias=bias)
    check(case, "blocks")
    if biased != "softcap":
        check(case, "fused")


@pytest.mark.parametrize(
    ("backend", "pattern"),
    [
        ("fused", None),
        ("fused", causal()),
        ("fused", SPARSE["window"]),
        ("blocks", None),
        ("blocks", causal()),
        ("blocks", SPARSE["window"]),
        ("blocks", SPARSE["columns"]),
    ],
)
@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_scales_that_are_not_positive(backend: str, pattern: Pattern | None, scale: float) -> None:
    check(case_of(queries=67, pattern=pattern, scale=scale), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES])
def test_more_keys_than_the_kernel_takes_at_once(backend: str, dtype: torch.dtype) -> None:
    """PyTorch's CPU kernel goes through the keys 512 at a time: here the first see nothing."""
    forbidden = torch.zeros(1, 1, 5, 1201, dtype=dtype)
    forbidden[..., 0, :] = forbidden[..., 1, :600] = forbidden[..., 2, 600:] = -torch.inf
    case = case_of(batch=1, heads=1, group=2, queries=5, keys=1201, dtype=dtype)
    check(replace(case, bias=forbidden), backend)
    check(replace(case, pattern=causal() & ~window(before=1190)), backend)


@pytest.mark.pairwise
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", [None, 0, 3, -2, 66, torch.tensor([5, 5, 66, 0, 31, 5, 2])])
@pytest.mark.parametrize("name", ["window", "strided", "columns", "globals", "graph", "no one"])
def test_where_the_queries_stand(backend: str, where: int | Tensor | None, name: str) -> None:
    check(case_of(queries=7, keys=67, pattern=SPARSE[name], where=where), backend)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_the_last_query_stands_at_the_last_key(backend: str) -> None:
    case = case_of(queries=7, keys=67, pattern=causal())
    whole = replace(case, query=torch.cat([case.query.new_zeros(2, 3, 60, 5), case.query], dim=2))
    last, all_ = (
        regard.attend(c.query, c.key, c.value, pattern=causal(), backend=backend)
        for c in (case, whole)
    )
    torch.testing.assert_close(last, all_[:, :, -7:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("keys", [1, 67, 131])
@pytest.mark.parametrize("pattern", [None, causal(), causal() & window(before=9), columns(every=3)])
def test_a_decoding_step(backend: str, keys: int, pattern: Pattern | None) -> None:
    check(case_of(heads=2, group=3, queries=1, keys=keys, pattern=pattern), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", [None, causal(), causal() & window(before=9), columns(every=3)])
def test_more_queries_than_keys(backend: str, pattern: Pattern | None) -> None:
    check(case_of(heads=2, group=3, queries=67, keys=7, pattern=pattern), backend)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("pattern", [causal() & padding([37, 0]), ~window(before=99, after=99)])
@pytest.mark.parametrize("biased", ["no", "alibi", "relative", "softcap"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_who_sees_nothing_gets_zeros_and_sends_no_gradient(
    backend: str, pattern: Pattern, biased: str, dtype: torch.dtype
) -> None:
    if (backend, biased) == ("fused", "softcap"):
        pytest.skip("fused takes no softcap")
    case = case_of(queries=41, keys=37, dtype=dtype, pattern=pattern, bias=bias_named(biased, 3))
    empty = ~pattern.allows(range(-4, 37), range(37)).any(dim=-1).expand(2, 41)
    for lse in (True, False):
        found = results(case, backend, lse=lse)
        assert all(bool(x.isfinite().all()) for name, x in found.items() if name != "lse")
        for name in ("output", "grad of query"):
            assert torch.all(found[name].transpose(1, 2)[empty] == 0.0), name
        if lse:
            infinite = found["lse"].transpose(1, 2) == -torch.inf
            assert torch.equal(infinite, empty[..., None].expand_as(infinite))
        for name in ("grad of key", "grad of value"):
            assert torch.all(found[name][empty.all(dim=1)] == 0.0), name


@pytest.mark.pairwise
@pytest.mark.parametrize("backend", ["auto", "reference", *BACKENDS])
@pytest.mark.parametrize(("queries", "keys"), [(0, 7), (7, 0), (0, 0)])
@pytest.mark.parametrize("pattern", [None, causal(), causal() & window(before=2)])
@pytest.mark.parametrize("biased", ["no", "alibi", "tensor"])
def test_sequences_of_no_length(
    backend: str, queries: int, keys: int, pattern: Pattern | None, biased: str
) -> None:
    bias = torch.zeros(1, 1, queries, keys) if biased == "tensor" else bias_named(biased, 4)
    options = {"value_dim": 3, "pattern": pattern, "bias": bias}
    case = case_of(heads=2, group=2, queries=queries, keys=keys, **options)
    for lse in (True, False):
        found = results(case, backend, lse=lse)
        assert found["output"].shape == (2, 4, queries, 3)
        assert torch.all(found.get("lse", torch.tensor(-torch.inf)) == -torch.inf)
        assert all(torch.all(x == 0.0) for name, x in found.items() if name != "lse")


@pytest.mark.parametrize("backend", ["auto", "reference", *BACKENDS])
@pytest.mark.parametrize("pattern", [None, causal(), causal() & window(before=2)])
def test_a_batch_of_no_sequences(backend: str, pattern: Pattern | None) -> None:
    case = case_of(batch=0, heads=2, group=2, queries=7, value_dim=3, pattern=pattern)
    for lse in (True, False):
        assert results(case, backend, lse=lse)["output"].shape == (0, 4, 7, 3)


@pytest.mark.pairwise
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", [None, causal(), SPARSE["window"], SPARSE["columns"]])
@pytest.mark.parametrize(
    "how", ["sequence before heads", "dim before sequence", "every other", "repeated", "a slice"]
)
def test_any_strides(backend: str, pattern: Pattern | None, how: str) -> None:
    case = case_of(heads=2, queries=67, pattern=pattern)
    laid_out = {
        name: laid_out_in_memory(getattr(case, name), how)
        for name in ("query", "key", "value", "grad")
    }
    assert not any(x.is_contiguous() for x in laid_out.values())
    check(replace(case, **laid_out), backend)


def laid_out_in_memory(x: Tensor, how: str) -> Tensor:
    """Return a tensor of the same shape that lies in memory in another way."""
    match how:
        case "sequence before heads":
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        case "dim before sequence":
            return x.mT.contiguous().mT
        case "every other":
            return x.repeat_interleave(2, dim=-1)[..., ::2]
        case "repeated":
            return x[:1, :1].expand_as(x)
        case _:
            return torch.nn.functional.pad(x, (1, 2, 3, 4))[..., 3:-4, 1:-2]


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_order_of_the_batch_makes_no_difference(backend: str, batch: int) -> None:
    lengths = torch.tensor([67, 5, 0])[:batch]
    bias = torch.randn(batch, 1, 67, 67, dtype=torch.float64)
    order = torch.arange(batch).flip(0)
    case = case_of(batch=batch, queries=67, pattern=causal() & padding(lengths), bias=bias)
    turned = Case(
        *(x[order] for x in (case.query, case.key, case.value, case.grad, case.grad_lse)),
        pattern=causal() & padding(lengths[order]),
        bias=bias[order],
    )
    straight, back = (results(c, backend) for c in (case, turned))
    for name in straight:
        assert torch.equal(straight[name], back[name][order]), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_is_its_sequences_one_by_one(backend: str) -> None:
    ids = torch.arange(3 * 67).view(3, 67) // torch.tensor([[9], [40], [67]])
    case = case_of(batch=3, queries=67, pattern=causal() & documents(ids))
    whole = results(case, backend)
    for i in range(3):
        tensors = (case.query, case.key, case.value, case.grad, case.grad_lse)
        alone = Case(*(x[i : i + 1] for x in tensors), pattern=causal() & documents(ids[i]))
        found = {name: x[i : i + 1] for name, x in whole.items()}
        assert_close(found, results(alone, "reference"), allowances(alone, torch.float64))


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("pattern", [None, causal(), SPARSE["window"]])
def test_under_autocast(backend: str, pattern: Pattern | None) -> None:
    """All do what autocast does for PyTorch's own attention: they attend in its dtype."""
    case = case_of(queries=67, dtype=torch.float32, pattern=pattern)
    with torch.autocast("cpu", torch.bfloat16):
        output, lse = regard.attend_with_lse(
            case.query, case.key, case.value, backend=backend, **case.options
        )
        alone = regard.attend(case.query, case.key, case.value, backend=backend, **case.options)
    lower = case.to(torch.bfloat16)
    exact, allowed = (
        results(lower.to(torch.float64), "reference"),
        allowances(lower, torch.bfloat16),
    )
    assert output.dtype == alone.dtype == torch.bfloat16
    assert lse.dtype == torch.float32
    assert_close({"output": output, "lse": lse}, exact, allowed)
    assert_close({"output": alone}, exact, allowed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bias_in_half_precision(backend: str, dtype: torch.dtype) -> None:
    """It may be of the type of the query, and be learned in it."""
    for learned in (False, True):
        bias = torch.randn(1, 2, 37, 37).to(dtype).requires_grad_(learned)
        case = case_of(heads=2, queries=37, dtype=dtype, pattern=causal(), bias=bias)
        check(case, backend)


@pytest.mark.parametrize("pattern", [None, causal(), causal() & window(before=9), padding([9, 3])])
@pytest.mark.parametrize("bias", [None, alibi(4), torch.zeros(1, 1, 37, 37)])
@pytest.mark.parametrize(("key_dim", "value_dim"), [(5, 5), (3, 8), (8, 3)])
def test_fused_does_not_write_the_matrix_down(
    pattern: Pattern | None, bias: Bias | Tensor | None, key_dim: int, value_dim: int
) -> None:
    """Where the kernel that does so is forbidden, another one must be found."""
    sizes = {"key_dim": key_dim, "value_dim": value_dim}
    case = case_of(heads=2, group=2, dtype=torch.float32, pattern=pattern, bias=bias, **sizes)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        regard.attend(case.query, case.key, case.value, backend="fused", **case.options)


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("pattern", [None, causal(), causal() & window(before=31)])
def test_dropout_drops_a_share_of_the_weights_and_keeps_the_mean(
    share: float, pattern: Pattern | None
) -> None:
    case = case_of(batch=3, queries=67)
    unit = torch.eye(67, dtype=torch.float64).expand(3, 3, 67, 67)
    torch.manual_seed(0)
    whole, dropped = (
        regard.attend(case.query, case.key, unit, pattern=pattern, dropout=p, backend="fused")
        for p in (0.0, share)
    )
    seen, kept = whole != 0.0, dropped != 0.0
    assert not (kept & ~seen).any()
    torch.testing.assert_close(dropped[kept], whole[kept] / (1 - share))
    # Each of n weights is dropped by itself: five standard deviations around the mean.
    n = int(seen.sum())
    assert abs(float((seen & ~kept).sum()) / n - share) < 5 * math.sqrt(share * (1 - share) / n)
    spread = math.sqrt(float((whole**2).sum()) * share / (1 - share))
    assert abs(float(dropped.sum() - whole.sum())) < 5 * spread


@pytest.mark.parametrize("group", [1, 3])
def test_masks_that_are_not_written_down(monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    """Where masks would take up much memory, the pattern is asked in each kernel call anew."""
    monkeypatch.setattr(import_module("regard.patterns.layout"), "WRITTEN_PAIRS", 0)
    pattern = causal() & documents([[0] * 31 + [1] * 40, [0] * 60 + [1] * 11]) | columns(every=7)
    query = torch.randn(2, 2 * group, 71, 5, dtype=torch.float64)
    key, value = torch.randn(2, 2, 2, 71, 5, dtype=torch.float64)
    found = regard.attend_with_lse(query, key, value, pattern=pattern, backend="blocks")
    exact = regard.attend_with_lse(query, key, value, pattern=pattern, backend="reference")
    torch.testing.assert_close(found, exact)
