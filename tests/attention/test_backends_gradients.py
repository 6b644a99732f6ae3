"""Gradients of every backend: of sums, of some inputs, of the log-sum-exp, of a shared bias."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import regard
from regard import causal
from regard.patterns import Pattern
from regard.positions import softcap
from tests.attention.backends import BACKENDS, SPARSE, bias_named
from tests.attention.cases import case_of, relative, results
from tests.attention.rounding import allowances, assert_close


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("pattern", [None, causal(), SPARSE["window"]])
def test_a_sum_sends_back_a_single_number(backend: str, lse: bool, pattern: Pattern | None) -> None:
    """The gradient of a sum is one number, expanded: all its strides are 0."""
    case = case_of(heads=2, queries=67, pattern=pattern)
    one = torch.ones((), dtype=torch.float64)
    case = replace(case, grad=one.expand_as(case.grad), grad_lse=one.expand_as(case.grad_lse))
    found, exact = (results(case, name, lse=lse) for name in (backend, "reference"))
    assert_close(found, exact, allowances(case, torch.float64, lse=lse))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", [causal(), SPARSE["window"]])
@pytest.mark.parametrize("trained", ["query", "key", "value", "bias"])
def test_gradients_of_some_inputs_only(backend: str, pattern: Pattern, trained: str) -> None:
    case = case_of(heads=2, queries=67, pattern=pattern)
    bias = relative(2, torch.Generator().manual_seed(0), torch.float64)
    bias.requires_grad_(trained == "bias")
    case = replace(case, bias=bias)
    whole = results(case, "reference")
    inputs = {name: getattr(case, name).clone() for name in ("query", "key", "value")}
    wanted = bias.table if trained == "bias" else inputs[trained].requires_grad_()
    output, lse = regard.attend_with_lse(**inputs, pattern=pattern, bias=bias, backend=backend)
    (found,) = torch.autograd.grad((output, lse), wanted, (case.grad, case.grad_lse))
    name = f"grad of {trained}"
    assert_close({name: found}, whole, allowances(case, torch.float64))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", [causal(), SPARSE["window"]])
def test_without_gradients(backend: str, pattern: Pattern) -> None:
    bias = relative(2, torch.Generator().manual_seed(0), torch.float64)
    case = case_of(heads=2, queries=67, pattern=pattern, bias=bias)
    exact, allowed = results(case, "reference"), allowances(case, torch.float64)
    query = case.query.requires_grad_()
    with torch.no_grad():
        output, lse = regard.attend_with_lse(
            query, case.key, case.value, backend=backend, **case.options
        )
        alone = regard.attend(query, case.key, case.value, backend=backend, **case.options)
    assert not output.requires_grad
    assert not lse.requires_grad
    assert_close({"output": output, "lse": lse}, exact, allowed)
    assert_close({"output": alone}, exact, allowed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", [None, causal(), SPARSE["window"], SPARSE["columns"]])
@pytest.mark.parametrize("biased", ["no", "alibi", "relative", "softcap"])
def test_the_gradient_of_the_lse_is_the_row_of_weights(
    backend: str, pattern: Pattern | None, biased: str
) -> None:
    """Where only the log-sum-exp is used, and with it as the only thing that is used."""
    if (backend, biased) == ("fused", "softcap"):
        pytest.skip("fused takes no softcap")
    bias = bias_named(biased, 2)
    case = case_of(heads=2, queries=37, pattern=pattern, bias=bias)
    case = replace(case, grad=torch.zeros_like(case.grad))
    exact, allowed = results(case, "reference"), allowances(case, torch.float64)
    query, key = (x.clone().requires_grad_() for x in (case.query, case.key))
    _, lse = regard.attend_with_lse(query, key, case.value, backend=backend, **case.options)
    found = torch.autograd.grad(lse, (query, key), case.grad_lse)
    assert_close(dict(zip(("grad of query", "grad of key"), found, strict=True)), exact, allowed)


@pytest.mark.pairwise
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", [None, causal(), SPARSE["globals"]])
@pytest.mark.parametrize("value_dim", [1, 3])
@pytest.mark.parametrize("biased", ["no", "learned", "softcap"])
def test_gradcheck(backend: str, pattern: Pattern | None, value_dim: int, biased: str) -> None:
    if (backend, biased) == ("fused", "softcap"):
        pytest.skip("fused takes no softcap")
    case = case_of(batch=1, heads=1, group=2, queries=4, keys=31, key_dim=2, value_dim=value_dim)
    inputs = [x.requires_grad_() for x in (case.query, case.key, case.value)]
    if biased == "learned":
        inputs.append(torch.randn(1, 2, 4, 31, dtype=torch.float64, requires_grad=True))

    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> object:
        return regard.attend_with_lse(
            query,
            key,
            value,
            pattern=pattern,
            bias=softcap(1.5) if biased == "softcap" else bias,
            backend=backend,
        )

    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_the_gradient_of_a_shared_bias_is_summed_in_single_precision(backend: str) -> None:
    """A bias in half precision: summed over 128 sequences in its own type, much would be lost."""
    bias = torch.randn(1, 1, 7, 7).bfloat16().requires_grad_()
    case = case_of(batch=128, heads=1, queries=7, dtype=torch.bfloat16, bias=bias)
    found = results(case, backend)["grad of bias"].double()
    in_double = bias.detach().double().requires_grad_()
    exact = results(replace(case.to(torch.float64), bias=in_double), "reference")["grad of bias"]
    # The terms have both signs, so their sum and the sum of their roundings, half an epsilon each,
    # grow alike; rounding the result adds another half.
    eps = torch.finfo(torch.bfloat16).eps
    assert float((found - exact).abs().max()) < eps * float(exact.abs().max())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("learned", [False, True])
def test_a_bias_that_is_changed_before_the_backward_is_noticed(backend: str, learned: bool) -> None:
    """As PyTorch does for its own: a gradient computed from other numbers would be wrong."""
    case = case_of(queries=7)
    bias = torch.zeros(1, 1, 7, 7, dtype=torch.float64, requires_grad=learned)
    query = case.query.requires_grad_()
    output, _ = regard.attend_with_lse(query, case.key, case.value, bias=bias, backend=backend)
    with torch.no_grad():
        bias += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
