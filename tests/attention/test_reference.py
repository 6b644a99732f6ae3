"""The reference, held against plain Python: the meaning of attention, one number at a time."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import Tensor

import regard
from regard import causal, padding, window
from regard.patterns import Pattern, everyone
from regard.positions import Bias, alibi, softcap
from tests.attention.cases import Case, case_of, cases, results
from tests.attention.rounding import allowances, assert_close
from tests.strategies import fewer

SMALL = (1, 2, 3, 5)


def position_of(case: Case, index: int) -> int:
    if isinstance(case.where, Tensor):
        return int(case.where[index])
    first = case.key.shape[2] - case.query.shape[2] if case.where is None else case.where
    return first + index


def bias_of(case: Case, score: float, batch: int, head: int, index: int, key: int) -> float:
    """Adjust one score; a tensor as bias is read by the index of the query, not its position."""
    if case.bias is None:
        return score
    if isinstance(case.bias, Tensor):
        values = case.bias.detach()
        return score + float(values[batch % len(values), head % values.shape[1], index, key])
    place = (torch.tensor(x) for x in (batch, head, position_of(case, index), key))
    return float(case.bias.adjust(torch.tensor(score, dtype=torch.float64), *place).detach())


def attend_in_python(case: Case) -> dict[str, Tensor]:
    """Return output and log-sum-exp from loops over single numbers."""
    batch, heads, queries, key_dim = case.query.shape
    _, key_heads, keys, value_dim = case.value.shape
    scale = 1.0 / math.sqrt(key_dim) if case.scale is None else case.scale
    output = torch.zeros(batch, heads, queries, value_dim, dtype=torch.float64)
    lse = torch.zeros(batch, heads, queries, dtype=torch.float64)
    where = [position_of(case, i) for i in range(queries)]
    pattern = everyone() if case.pattern is None else case.pattern
    may_look = pattern.allows(where, range(keys)).expand(batch, -1, -1)
    may_look = may_look.tolist()
    for b in range(batch):
        for h in range(heads):
            key, value = (x[b, h // (heads // key_heads)].tolist() for x in (case.key, case.value))
            for i, vector in enumerate(case.query[b, h].tolist()):
                masses = [0.0] * keys
                for j in range(keys):
                    if may_look[b][i][j]:
                        score = scale * sum(x * y for x, y in zip(vector, key[j], strict=True))
                        masses[j] = math.exp(bias_of(case, score, b, h, i, j))
                total = sum(masses)
                lse[b, h, i] = math.log(total) if total else -math.inf
                for column in range(value_dim):
                    seen = sum(mass * value[j][column] for j, mass in enumerate(masses))
                    output[b, h, i, column] = seen / total if total else 0.0
    return {"output": output, "lse": lse}


def check(case: Case) -> None:
    found = results(case, "reference")
    exact = attend_in_python(case)
    allowed = allowances(case, torch.float64)
    assert_close({name: found[name] for name in exact}, exact, allowed)


@fewer
@given(cases(lengths=SMALL))
def test_equals_loops_over_numbers(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("pattern", [everyone(), causal() & window(before=2), padding([3, 0])])
@pytest.mark.parametrize("bias", [None, alibi(4), softcap(1.5)])
@pytest.mark.parametrize("scale", [None, 0.0, 3.0])
def test_equals_loops_over_numbers_case_by_case(
    pattern: Pattern, bias: Bias | None, scale: float | None
) -> None:
    shapes = {"heads": 2, "group": 2, "queries": 5, "keys": 7, "value_dim": 3}
    check(case_of(**shapes, pattern=pattern, bias=bias, scale=scale))


def test_a_tensor_bias_is_read_by_index() -> None:
    bias = torch.randn(2, 3, 4, 7, dtype=torch.float64)
    bias[:, :, 1] = -torch.inf
    bias[0, 1, 2, ::2] = -torch.inf
    for where in (None, 0, 2):
        check(case_of(queries=4, keys=7, bias=bias, pattern=causal(), where=where))


def test_a_row_that_sees_nothing_is_zero_and_sends_no_gradient() -> None:
    # Sequence 1 sees no key at all; in sequence 0 the first two queries stand before every key.
    case = case_of(queries=7, keys=5, pattern=causal() & padding([5, 0]))
    found = results(case, "reference")
    for name in ("output", "grad of query"):
        assert torch.all(found[name][0, :, :2] == 0.0), name
        assert torch.all(found[name][1] == 0.0), name
        assert torch.all(found[name][0, :, 3:].abs().sum(dim=-1) > 0.0), name
    assert torch.all(found["lse"][0, :, :2] == -torch.inf)
    assert torch.all(found["lse"][1] == -torch.inf)
    for name in ("grad of key", "grad of value"):
        assert torch.all(found[name][1] == 0.0), name
        assert torch.all(found[name].isfinite()), name


def test_the_gradient_of_the_lse_is_the_row_of_weights() -> None:
    case = case_of(queries=5, keys=7, key_dim=3, pattern=causal())
    query = case.query.requires_grad_()
    _, lse = regard.attend_with_lse(query, case.key, case.value, pattern=causal(), scale=1.0)
    weights = regard.attend(
        query,
        case.key,
        torch.eye(7, dtype=torch.float64).expand(2, 3, 7, 7),
        pattern=causal(),
        scale=1.0,
        backend="reference",
    )
    (grad,) = torch.autograd.grad(lse.sum(), query)
    torch.testing.assert_close(grad, weights @ case.key)


def test_gradients() -> None:
    case = case_of(batch=1, heads=1, group=2, queries=3, keys=4, key_dim=2, value_dim=1)
    options = {"pattern": causal() & window(before=1), "bias": alibi(2), "backend": "reference"}
    inputs = [x.requires_grad_() for x in (case.query, case.key, case.value)]
    assert torch.autograd.gradcheck(lambda *x: regard.attend_with_lse(*x, **options), inputs)


def test_head_h_looks_with_key_head_h_over_group() -> None:
    case = case_of(heads=2, group=3)
    whole = results(case, "reference")
    for head in range(6):
        part = replace(
            case,
            query=case.query[:, head : head + 1],
            key=case.key[:, head // 3 : head // 3 + 1],
            value=case.value[:, head // 3 : head // 3 + 1],
            grad=case.grad[:, head : head + 1],
            grad_lse=case.grad_lse[:, head : head + 1],
        )
        alone = results(part, "reference")
        torch.testing.assert_close(whole["output"][:, head], alone["output"][:, 0])
        torch.testing.assert_close(whole["lse"][:, head], alone["lse"][:, 0])


def weights_under_dropout(share: float, seed: int) -> Tensor:
    """Return the weights, read off by values that are the unit vectors."""
    torch.manual_seed(seed)
    case = case_of(batch=3, heads=5, queries=67)
    value = torch.eye(67, dtype=torch.float64).expand(3, 5, 67, 67)
    return regard.attend(case.query, case.key, value, dropout=share, backend="reference")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_drops_a_share_of_the_weights_and_keeps_the_mean(share: float) -> None:
    whole, dropped = (weights_under_dropout(p, seed=0) for p in (0.0, share))
    kept = dropped != 0.0
    # What is kept grows by 1 / (1 − share), so that the mean stays.
    torch.testing.assert_close(dropped[kept], whole[kept] / (1 - share))
    # Each of n weights is dropped by itself: five standard deviations around the mean.
    n = whole.numel()
    assert abs(float((~kept).double().mean()) - share) < 5 * math.sqrt(share * (1 - share) / n)
    spread = math.sqrt(float((whole**2).sum()) * share / (1 - share))
    assert abs(float(dropped.sum() - whole.sum())) < 5 * spread


def test_dropout_follows_the_seed() -> None:
    again = [weights_under_dropout(0.5, seed) for seed in (1, 1, 2)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


def test_dropout_leaves_the_lse_alone() -> None:
    case = case_of()
    plain, dropped = (
        regard.attend_with_lse(case.query, case.key, case.value, dropout=p, backend="reference")[1]
        for p in (0.0, 0.5)
    )
    assert torch.equal(plain, dropped)


@pytest.mark.parametrize(
    ("dtype", "lse_dtype"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_dtypes(dtype: torch.dtype, lse_dtype: torch.dtype) -> None:
    found = results(case_of(dtype=dtype), "reference")
    assert found.pop("lse").dtype == lse_dtype
    assert {x.dtype for x in found.values()} == {dtype}
