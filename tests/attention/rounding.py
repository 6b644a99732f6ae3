"""How far rounding may carry a result, from the numbers that go into it.

A backend is compared with the reference in float64, element by element, and the allowance of an
element is what the roundings on its way can add up to. Every result is a sum of products, so the
same sum over absolute values says how large its terms are, and an error of a share s in each term
changes the result by at most s times that.

The share. With ε the machine epsilon of the dtype in which sums are kept (float32, or float64 for
float64), and S the largest sum of absolute products that makes up a score:

- a score is a sum of key_dim products, scaled, biased and reduced by the row's maximum: it is off
  by at most (key_dim + 4) · S · ε, and its exponential by that share;
- the exponential itself is off by up to 20 ulp: PyTorch's CPU kernel uses a fast one;
- a row's weights are summed, and the products with the values are, over num_keys terms each;
- where gradients meet values, value_dim products are summed.

In half precision the kernel rounds four times on top of that, each time by at most half an epsilon
of the half precision: the weights, the output, the gradient of the scores, and the result. A number
below the smallest one that the dtype knows is lost altogether. And its exponential is PyTorch's
`fexp_u20`, a polynomial of third degree between powers of two, which is off by a share of up to
1.1e-4: the log-sum-exp comes in float32, but is no better than that.

The gradient of a score is weight · (grad · value − grad · output), a product whose two factors and
whose difference each carry such a share: three shares.
"""

import torch
from torch import Tensor

from regard.attention.call import Attention
from regard.attention.reference import positions_of
from tests.attention.cases import Case, learned_tensors, lse_dtype

EXPONENTIAL = 20
HALF_ROUNDINGS = 4
HALF_EXPONENTIAL = 1.1e-4


def allowances(
    case: Case, dtype: torch.dtype, *, lse: bool = True, rounds_bias: bool = False
) -> dict[str, Tensor]:
    """Return how far each element of the results of a case may be from the exact one, by name.

    Args:
        case: the case.
        dtype: the type of query, key and value in the backend.
        lse: whether a gradient comes back to the log-sum-exp.
        rounds_bias: whether the backend rounds the bias to that type.
    """
    exact = case.to(torch.float64)
    call = Attention.checked(exact.query, exact.key, exact.value, dropout=0.0, **exact.options)
    query, grad = exact.query, exact.grad
    key, value = (x.repeat_interleave(call.group, dim=1) for x in (exact.key, exact.value))
    grad_lse = exact.grad_lse.abs()[..., None] if lse else 0.0

    with torch.no_grad():
        scores = call.scale * query @ key.mT
        terms = abs(call.scale) * query.abs() @ key.abs().mT
        added = torch.zeros_like(scores)
        if call.bias is not None:
            adjusted = call.bias.adjust(scores, *positions_of(call))
            added, scores = (adjusted - scores).abs(), adjusted
        batch, _, query_position, key_position = positions_of(call)
        allowed = call.pattern.test(batch, query_position, key_position) & scores.isfinite()
        weights = torch.softmax(scores.masked_fill(~allowed, -1e300), dim=-1) * allowed
        sums = torch.logsumexp(scores.masked_fill(~allowed, -1e300), dim=-1)
        sums = sums.masked_fill(~allowed.any(dim=-1), 0.0)
        largest = float(torch.where(allowed, terms + added, 0.0).max()) if allowed.any() else 0.0
        largest_bias = float(torch.where(allowed, added, 0.0).max()) if allowed.any() else 0.0

    fine, coarse = torch.finfo(lse_dtype(dtype)).eps, torch.finfo(dtype).eps
    key_dim, value_dim, num_keys = key.shape[-1], value.shape[-1], key.shape[2]
    in_score = fine * (key_dim + 4) * largest + (0.5 * coarse * largest_bias if rounds_bias else 0)
    exponential = HALF_EXPONENTIAL if coarse > fine else EXPONENTIAL * fine
    share = in_score + exponential + fine * (2 * num_keys + value_dim)
    if coarse > fine:
        share += HALF_ROUNDINGS * 0.5 * coarse
    lost = torch.finfo(dtype).smallest_normal * coarse * num_keys

    output = weights @ value.abs()
    of_scores = weights * (
        grad.abs() @ value.abs().mT + (grad.abs() * output).sum(dim=-1, keepdim=True) + grad_lse
    )
    of_query = abs(call.scale) * of_scores @ key.abs()
    of_key = abs(call.scale) * of_scores.mT @ query.abs()
    of_value = weights.mT @ grad.abs()
    of_key, of_value = (x.unflatten(1, (-1, call.group)).sum(dim=2) for x in (of_key, of_value))
    bounds = {
        "output": share * output,
        "lse": in_score + exponential + fine * (num_keys + sums.abs()),
        "grad of query": 3 * share * of_query,
        "grad of key": 3 * share * of_key,
        "grad of value": 3 * share * of_value,
    }
    learned = learned_tensors(case.bias)
    if learned:
        assert call.bias is not None
        # An additive bias passes the gradient of a score on as it is.
        adjusted = call.bias.adjust(torch.zeros_like(of_scores), *positions_of(call))
        (of_bias,) = torch.autograd.grad(adjusted, learned, of_scores)
        bounds["grad of bias"] = 3 * share * of_bias
    largest_term = max(float(x.abs().max()) for x in (query, key, value, grad))
    return {name: bound + lost * max(1.0, largest_term) ** 2 for name, bound in bounds.items()}


def assert_close(
    found: dict[str, Tensor], expected: dict[str, Tensor], allowed: dict[str, Tensor]
) -> None:
    """Assert that results differ from the exact ones by no more than they may."""
    for name, one in found.items():
        exact, limit = expected[name].double(), allowed[name]
        one = one.double()
        assert one.shape == exact.shape, f"{name}: {list(one.shape)} is not {list(exact.shape)}"
        same = (one == exact) | ((one - exact).abs() <= limit)
        assert bool(same.all()), (
            f"{name}: {int((~same).sum())} of {same.numel()} numbers are off, by up to "
            f"{float((one - exact).abs()[~same].max()):.3g} where "
            f"{float(limit.expand_as(one)[~same].min()):.3g} is allowed"
        )
