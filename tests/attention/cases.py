"""Calls of attention for tests, and what comes out of them, gradients included."""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies
from hypothesis.strategies import DrawFn
from torch import Tensor

import regard
from regard import positions
from regard.patterns import Pattern
from regard.positions import Bias, Relative
from regard.positions.alibi import Alibi
from regard.positions.from_tensor import FromTensor
from tests.strategies import patterns, query_positions

LENGTHS = (1, 2, 7, 31, 37, 67, 97, 131)
"""Shorter than a block of keys (32), of queries (64), and longer; nearly all are prime."""

ALIBI = {heads: positions.alibi(heads) for heads in range(1, 7)}
"""Made beforehand: beartype checks a list by chance, which a strategy must not touch."""

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@dataclass(frozen=True)
class Case:
    """One call of attention and the gradients that come back to it.

    Attributes:
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim].
        value: [batch, key_heads, keys, value_dim].
        grad: of the output, [batch, heads, queries, value_dim].
        grad_lse: of the log-sum-exp, [batch, heads, queries], not of the dtype of the query.
        pattern: which keys each query may attend to.
        bias: what is done to the scores.
        scale: the factor on the scores.
        where: the positions of the queries.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    grad: Tensor
    grad_lse: Tensor
    pattern: Pattern | None = None
    bias: Bias | Tensor | None = None
    scale: float | None = None
    where: int | Tensor | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments after query, key and value."""
        return {
            "pattern": self.pattern,
            "bias": self.bias,
            "scale": self.scale,
            "positions": self.where,
        }

    def to(self, kind: torch.dtype | str) -> "Case":
        """Return the case in another dtype or on another device; the bias keeps its dtype."""
        bias = _moved(self.bias, kind) if isinstance(kind, str) else self.bias
        tensors = {name: getattr(self, name).to(kind) for name in ("query", "key", "value", "grad")}
        grad_lse = self.grad_lse.to(kind if isinstance(kind, str) else lse_dtype(kind))
        return replace(self, **tensors, grad_lse=grad_lse, bias=bias)


def _moved(bias: Bias | Tensor | None, device: str) -> Bias | Tensor | None:
    match bias:
        case Tensor():
            return bias.to(device)
        case Relative() | Alibi():
            return deepcopy(bias).to(device)
        case FromTensor(values, first_query):
            return FromTensor(values.to(device), first_query)
        case _:
            return bias


def lse_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that the log-sum-exp must have."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def learned_tensors(bias: Bias | Tensor | None) -> list[Tensor]:
    """Return the tensors of a bias that want a gradient."""
    tensors = (bias,) if isinstance(bias, Tensor) else () if bias is None else bias.tensors
    return [tensor for tensor in tensors if tensor.requires_grad]


def results(case: Case, backend: str, *, lse: bool = True) -> dict[str, Tensor]:
    """Return all that a backend gives for a case: output, log-sum-exp and gradients, by name."""
    inputs = [x.detach().requires_grad_() for x in (case.query, case.key, case.value)]
    learned = learned_tensors(case.bias)
    if lse:
        found = regard.attend_with_lse(*inputs, backend=backend, **case.options)
        grads = (case.grad, case.grad_lse)
    else:
        found = (regard.attend(*inputs, backend=backend, **case.options),)
        grads = (case.grad,)
    back = torch.autograd.grad(found, [*inputs, *learned], grads)
    names = ["grad of query", "grad of key", "grad of value", "grad of bias"]
    named = dict(zip(["output", "lse"], (x.detach() for x in found), strict=False))
    return named | dict(zip(names, back, strict=False))


def case_of(
    *,
    batch: int = 2,
    heads: int = 3,
    group: int = 1,
    queries: int = 37,
    keys: int | None = None,
    key_dim: int = 5,
    value_dim: int = 5,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **options: Any,
) -> Case:
    """Return a case with normal numbers in it; `heads` are those of the key."""
    keys = queries if keys is None else keys
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Case(
        query=normal(batch, heads * group, queries, key_dim),
        key=normal(batch, heads, keys, key_dim),
        value=normal(batch, heads, keys, value_dim),
        grad=normal(batch, heads * group, queries, value_dim),
        grad_lse=normal(batch, heads * group, queries),
        **options,
    ).to(dtype)


def relative(heads: int, generator: torch.Generator, dtype: torch.dtype) -> Relative:
    """Return a Relative whose table is random."""
    bias = Relative(heads, num_buckets=8, max_distance=23).to(dtype)
    with torch.no_grad():
        bias.table.copy_(torch.randn(bias.table.shape, generator=generator))
    return bias


@strategies.composite
def biases(
    draw: DrawFn, case: Case, *, dtype: torch.dtype, kinds: tuple[str, ...]
) -> Bias | Tensor | None:
    """Draw a bias for a case: with and without −inf, for one or all heads, learned or not."""
    batch, heads, queries, _ = case.query.shape
    kind = draw(strategies.sampled_from(kinds))
    generator = torch.Generator().manual_seed(draw(strategies.integers(0, 999)))
    if kind == "none":
        return None
    if kind == "alibi":
        return ALIBI[heads]
    if kind == "relative":
        return relative(heads, generator, dtype)
    if kind == "softcap":
        return positions.softcap(draw(strategies.sampled_from([1.5, 20.0])))
    first, rows = 0, queries
    if isinstance(case.where, Tensor):
        first, rows = int(case.where.min()), int(case.where.max() - case.where.min()) + 1
    shape = (draw(strategies.sampled_from([1, batch])), draw(strategies.sampled_from([1, heads])))
    values = torch.randn(*shape, rows, case.key.shape[2], generator=generator, dtype=torch.float64)
    if draw(strategies.booleans()):
        forbidden = torch.rand(values.shape, generator=generator) < 0.5
        values = values.masked_fill(forbidden, -torch.inf)
        values[:, :, rows // 2] = -torch.inf
    values = values.to(dtype).requires_grad_(draw(strategies.booleans()))
    if isinstance(case.where, Tensor):
        return positions.from_tensor(values, first_query=first)
    return values


@strategies.composite
def cases(
    draw: DrawFn,
    *,
    dtype: torch.dtype = torch.float64,
    biased: tuple[str, ...] = ("none", "alibi", "relative", "softcap", "tensor"),
    lengths: tuple[int, ...] = LENGTHS,
) -> Case:
    """Draw a case: its shapes, its pattern, its bias, where its queries stand."""
    keys = draw(strategies.sampled_from(lengths))
    anywhere = draw(strategies.booleans())
    batch = draw(strategies.sampled_from([1, 2, 3]))
    where = draw(strategies.sampled_from(["last", "first", "listed"]))
    if where == "listed":
        stands = draw(query_positions(keys, anywhere=anywhere))
        queries = len(stands)
    else:
        queries = draw(strategies.sampled_from([n for n in lengths if anywhere or n <= keys]))
        first = (
            strategies.integers(-10, keys) if anywhere else strategies.integers(0, keys - queries)
        )
        stands = None if where == "last" else draw(first)
    case = case_of(
        batch=batch,
        heads=draw(strategies.sampled_from([1, 2])),
        group=draw(strategies.sampled_from([1, 2, 3])),
        queries=queries,
        keys=keys,
        key_dim=draw(strategies.sampled_from([1, 3, 8])),
        value_dim=draw(strategies.sampled_from([1, 5, 8])),
        dtype=dtype,
        seed=draw(strategies.integers(0, 999)),
        pattern=draw(patterns(keys, batch, anywhere=anywhere)),
        scale=draw(strategies.sampled_from([None, 0.7, 2.0, -0.3])),
        where=stands,
    )
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    return replace(case, bias=draw(biases(case, dtype=kept, kinds=biased)))
