"""Statistics by fused calls: the same as by tiles and in float64, whatever the tensors are like."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.matrix import EffectiveKeys, Entropy, Offsets, Pool, Received, fused
from regard.patterns import Pattern, from_mask
from regard.patterns.remapped import remapped
from regard.positions import alibi
from tests.matrix.cases import assert_within

LENGTH = 331


def tensors(
    length: int = LENGTH, heads: int = 4, key_heads: int = 4, size: float = 1.0, **settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query = size * torch.randn(2, heads, length, 16, **settings)
    key, value = (torch.randn(2, key_heads, length, 16, **settings) for _ in range(2))
    return query, key, value


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which fused calls are made: no statistic falls back to tiles unnoticed."""
    made: list[str] = []
    original = fused.attend_with_lse

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(repr(options["pattern"]))
        return original(*arguments, **options)

    monkeypatch.setattr(fused, "attend_with_lse", counted)
    return made


def exact_weights(
    query: Tensor, key: Tensor, pattern: Pattern, sinks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return all weights in float64, and the mask."""
    group = query.shape[1] // key.shape[1]
    scores = (
        query.double() @ key.double().repeat_interleave(group, dim=1).mT / query.shape[3] ** 0.5
    )
    queries, keys = scores.shape[2:]
    mask = pattern.allows(range(keys - queries, keys), range(keys))
    mask = (mask if mask.dim() == 3 else mask[None])[:, None].expand(scores.shape)
    scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        column = sinks.double()[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], dim=3)
    weights = scores.softmax(dim=3).nan_to_num()[..., :keys]
    return weights.masked_fill(~mask, 0.0), mask


def check(matrix: Any, weights: Tensor, mask: Tensor, off: float) -> None:
    """Hold all statistics against their definitions.

    Args:
        matrix: the matrix.
        weights: in float64.
        mask: which pairs are allowed.
        off: how far a logarithm of a weight may be off.
    """
    entropy, effective, offsets = matrix.summarize(Entropy(), EffectiveKeys(), Offsets(3))
    # Of dense matrices only by fused calls if the log-sum-exp of their rows is known, as it is now.
    received = matrix.received()
    nats = torch.special.entr(weights).sum(dim=3)
    share = weights.sum(dim=3)
    assert_within(entropy.nats, nats, off * (1 + 3 * nats))
    normalized = weights / share[..., None].clamp_min(1e-300)
    count = torch.special.entr(normalized).sum(dim=3).exp().masked_fill(share == 0.0, 0.0)
    assert_within(effective.count, count, off * count * (4 + 4 * nats / share.clamp_min(1e-3)))

    queries = mask.sum(dim=2)
    assert torch.equal(received.queries, queries)
    total = weights.sum(dim=2)
    assert_within(received.mean, total / queries, off * (total / queries).nan_to_num() + 1e-30)

    num_queries, num_keys = weights.shape[2:]
    first = num_keys - num_queries
    for offset in range(-3, 4):
        diagonal = weights.diagonal(first + offset, dim1=2, dim2=3).sum(dim=2) / num_queries
        assert_within(offsets.at(offset), diagonal, off * diagonal + 1e-30)
    assert_within(offsets.first, weights[..., 0].mean(dim=2), off)
    near = sum(offsets.at(offset).double() for offset in range(-3, 4))
    assert_within(offsets.beyond, share.mean(dim=2) - near, 2 * off)

    vectors = torch.randn(5, num_queries, generator=torch.Generator().manual_seed(3)).double()
    magnitude = vectors.abs() @ weights
    assert_within(vectors @ matrix, vectors @ weights, off * magnitude + 1e-30)


def graph(length: int) -> Pattern:
    torch.manual_seed(1)
    return regard.neighbours(torch.randint(0, length, (4 * length, 2)))


def without_some_pairs() -> Pattern:
    pattern = regard.causal()
    for start in range(0, 200, 50):
        pattern &= ~regard.pairs(queries=slice(start + 20, None), keys=range(start, start + 20))
    return pattern


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "everyone": regard.everyone,
    "causal": regard.causal,
    "window": lambda: regard.causal() & regard.window(before=17),
    "strided": lambda: regard.causal() & regard.strided(16),
    "columns": lambda: regard.causal() & (regard.window(before=7) | regard.columns(every=32)),
    "global": lambda: regard.window(before=5, after=5) | regard.global_at([0, 100]),
    "prefix": lambda: regard.causal() | regard.prefix(40),
    "neighbours": lambda: graph(LENGTH),
    "without pairs": without_some_pairs,
    "documents": lambda: regard.causal() & regard.documents(torch.arange(LENGTH) // 60),
    "padding": lambda: regard.causal() & regard.padding([LENGTH, 200]),
    "mask": lambda: from_mask(torch.rand(2, LENGTH, LENGTH) < 0.2),
    "empty rows": lambda: regard.window(before=9) & regard.prefix(50),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern(name: str, calls: list[str]) -> None:
    query, key, _ = tensors()
    pattern = PATTERNS[name]()
    matrix = regard.AttentionMatrix(query, key, pattern=pattern)
    check(matrix, *exact_weights(query, key, pattern), 3e-5)
    assert calls


@pytest.mark.parametrize("name", PATTERNS)
def test_the_transposed_pattern(name: str) -> None:
    pattern = PATTERNS[name]()
    exchanged = remapped(pattern, exchanged=True)
    mask = pattern.allows(range(LENGTH), range(LENGTH))
    assert torch.equal(exchanged.allows(range(LENGTH), range(LENGTH)), mask.mT)
    torch.manual_seed(0)
    x = torch.randn(2, 1, LENGTH, 8)
    output = regard.attend(x, x, x, pattern=exchanged, positions=0, backend="blocks")
    exact = regard.attend(x, x, x, pattern=exchanged, positions=0, backend="reference")
    assert torch.allclose(output, exact, atol=1e-5)


def test_positions_of_later_queries(calls: list[str]) -> None:
    query, key, _ = tensors()
    query = query[:, :, -100:]
    for pattern in (regard.causal(), regard.causal() & regard.strided(7), graph(LENGTH)):
        matrix = regard.AttentionMatrix(query, key, pattern=pattern)
        check(matrix, *exact_weights(query, key, pattern), 3e-5)
    assert calls


@pytest.mark.parametrize("first", [-(10**9), -5, LENGTH - 3, LENGTH + 2, 10**9])
def test_queries_far_from_all_keys(first: int) -> None:
    query, key, _ = tensors()
    query = query[:, :, :7]
    matrix = regard.AttentionMatrix(query, key, positions=first)
    weights, _ = exact_weights(query, key, regard.everyone())
    offset = torch.arange(LENGTH) - torch.arange(first, first + 7)[:, None]
    offsets = matrix.offsets(2)
    for reach in range(-2, 3):
        near = weights.masked_fill(offset != reach, 0.0).sum(dim=(2, 3)) / 7
        assert_within(offsets.at(reach), near, 1e-5)
    assert_within(offsets.beyond, 1 - offsets.near.double().sum(dim=2), 1e-5)


def test_some_rows_and_heads(calls: list[str]) -> None:
    query, key, _ = tensors(key_heads=2)
    pattern = regard.causal() & (regard.window(before=30) | regard.columns(every=16))
    weights, mask = exact_weights(query, key, pattern)
    matrix = regard.AttentionMatrix(query, key, pattern=pattern)[:, 1:4, 50:290]
    entropy, received = matrix.summarize(Entropy(), Received())
    weights, mask = weights[:, 1:4, 50:290], mask[:, 1:4, 50:290]
    assert_within(entropy.nats, torch.special.entr(weights).sum(dim=3), 1e-4)
    assert torch.equal(received.queries, mask.sum(dim=2))
    assert_within(received.mean, weights.sum(dim=2) / mask.sum(dim=2), 1e-5)
    assert calls
    # Rows that do not follow each other have no transposed call, but the same results.
    apart = regard.AttentionMatrix(query, key, pattern=pattern)[:, :, ::3]
    assert_within(
        apart.received().total, exact_weights(query, key, pattern)[0][:, :, ::3].sum(2), 1e-4
    )


@pytest.mark.parametrize("offset", [0.0, 5.0, 50.0])
def test_keys_that_share_an_offset(offset: float, calls: list[str]) -> None:
    query, key, _ = tensors()
    key = key + offset * torch.randn(16)
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    # What float32 keys themselves say is exact, and relative to their mean it stays so.
    check(matrix, *exact_weights(query, key, regard.causal()), 3e-5 * (1 + offset / 10))
    assert calls


@pytest.mark.parametrize("garbage", [0.0, 1e4, 1e20, float("inf"), float("nan")])
def test_masked_keys_may_hold_anything(garbage: float) -> None:
    """As the unused end of a cache does."""
    query, key, _ = tensors()
    weights, mask = exact_weights(query, key, regard.padding([200, 200]))
    key[:, :, 200:] = garbage
    matrix = regard.AttentionMatrix(query, key, pattern=regard.padding([200, 200]))
    check(matrix, weights, mask, 3e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_precision_is_cast_up(dtype: torch.dtype, calls: list[str]) -> None:
    query, key, value = (x.to(dtype) for x in tensors(key_heads=2))
    weights, mask = exact_weights(query, key, regard.causal())
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    check(matrix, weights, mask, 3e-5)
    exact = weights @ value.double().repeat_interleave(2, dim=1)
    assert_within(matrix @ value, exact, 1e-5)
    assert calls


@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("given", [False, True])
def test_sinks_and_a_given_log_sum_exp(size: float, given: bool, calls: list[str]) -> None:
    query, key, value = tensors(key_heads=2, size=2.0)
    key = key + 3.0
    sinks = size * torch.tensor([-1.0, 0.0, 0.5, 1.0])
    weights, mask = exact_weights(query, key, regard.causal(), sinks)
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal(), sinks=sinks)
    if given:
        lse = regard.AttentionMatrix(query, key, pattern=regard.causal(), sinks=sinks).lse
        matrix = regard.AttentionMatrix(query, key, pattern=regard.causal(), sinks=sinks, lse=lse)
    check(matrix, weights, mask, 1e-4)
    assert_within(matrix @ value, weights @ value.double().repeat_interleave(2, 1), 1e-4)
    assert calls


def test_another_log_sum_exp_scales_all_weights(calls: list[str]) -> None:
    query, key, value = tensors()
    lse = regard.AttentionMatrix(query, key).lse
    matrix = regard.AttentionMatrix(query, key, lse=lse + 1.0)
    weights = exact_weights(query, key, regard.everyone())[0] / torch.e
    assert_within(matrix.entropy().nats, torch.special.entr(weights).sum(dim=3), 1e-4)
    assert_within(matrix @ value, weights @ value.double(), 1e-5)
    assert calls


def test_biases_are_left_to_tiles(calls: list[str]) -> None:
    query, key, value = tensors()
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal(), bias=alibi(4))
    weights = matrix.dense().double()
    assert_within(matrix.entropy().nats, torch.special.entr(weights).sum(dim=3), 1e-4)
    assert_within(matrix @ value, weights @ value.double(), 1e-5)
    assert not calls


def test_statistics_beside_tiles_are_computed_with_them(calls: list[str]) -> None:
    query, key, _ = tensors()
    regard.AttentionMatrix(query, key).summarize(Entropy(), Pool(16))
    assert not calls


def test_a_subclass_with_its_own_update_is_computed_by_it() -> None:
    class Doubled(Entropy):
        def update(self, state: Any, tile: Any) -> Any:
            return super().update(super().update(state, tile), tile)

    query, key, _ = tensors()
    matrix = regard.AttentionMatrix(query, key)
    twice = matrix.summarize(Doubled())[0]
    assert torch.allclose(twice.nats, 2 * matrix.entropy().nats, atol=1e-4)


def test_many_positions_are_exact_on_the_diagonal(calls: list[str]) -> None:
    length = 65_536
    torch.manual_seed(0)
    query, key = (torch.randn(1, 1, length, 8) for _ in range(2))
    pattern = regard.causal() & regard.window(before=63)
    matrix = regard.AttentionMatrix(query, key, pattern=pattern)
    entropy, offsets, received = matrix.summarize(Entropy(), Offsets(2), Received())
    assert calls
    rows = torch.arange(length - 500, length)
    some = matrix.rows(rows)[0, 0].double()
    scores = query[0, 0, rows].double() @ key[0, 0].double().T / 8**0.5
    scores = scores.masked_fill(~pattern.allows(rows, range(length)), -torch.inf)
    exact = scores.softmax(dim=1)
    assert_within(some, exact, 1e-5)
    assert_within(entropy.nats[0, 0, rows], torch.special.entr(exact).sum(dim=1), 3e-5)
    assert_within(received.queries[0, 0, -3:], torch.tensor([3, 2, 1]), 0.0)
    assert_within(received.queries[0, 0, :3], torch.tensor([64, 64, 64]), 0.0)
    assert float((offsets.near.sum() + offsets.beyond.sum() - 1).abs()) < 1e-6


def test_products_of_a_batch_and_of_one_head(calls: list[str]) -> None:
    query, key, _ = tensors()
    torch.manual_seed(2)
    weights, _ = exact_weights(query, key, regard.causal())
    A = regard.AttentionMatrix(query, key, pattern=regard.causal())
    for values in (torch.randn(LENGTH), torch.randn(LENGTH, 40), torch.randn(2, 1, LENGTH, 3)):
        columns = values[:, None] if values.dim() == 1 else values
        exact = weights @ columns.double()
        assert_within(A @ values, exact[..., 0] if values.dim() == 1 else exact, 1e-5)
    values = torch.randn(LENGTH, 5)
    assert_within(A[1, 2] @ values, weights[1, 2] @ values.double(), 1e-5)
    assert_within(A[1, 2, 30:60] @ values, weights[1, 2, 30:60] @ values.double(), 1e-5)
    assert calls
    before = len(calls)
    assert_within(A[..., :100] @ values[:100], weights[..., :100] @ values[:100].double(), 1e-5)
    assert len(calls) == before


def test_products_with_vectors(calls: list[str]) -> None:
    query, key, _ = tensors(key_heads=2)
    pattern = regard.causal() & (regard.window(before=30) | regard.columns(every=16))
    weights, _ = exact_weights(query, key, pattern)
    A = regard.AttentionMatrix(query, key, pattern=pattern)
    torch.manual_seed(2)
    for vectors in (torch.randn(LENGTH), torch.randn(40, LENGTH), torch.randn(2, 1, 3, LENGTH)):
        rows = vectors[None] if vectors.dim() == 1 else vectors
        exact = rows.double() @ weights
        assert_within(vectors @ A, exact[..., 0, :] if vectors.dim() == 1 else exact, 2e-5)
    of_heads = torch.randn(2, 3, 5, 240)
    exact = of_heads.double() @ weights[:, 1:4, 50:290]
    assert_within(of_heads @ A[:, 1:4, 50:290], exact, 2e-5)
    vectors = torch.randn(5, LENGTH)
    assert_within(vectors @ A[1, 2], vectors.double() @ weights[1, 2], 2e-5)
    assert len(calls) > 5


def test_products_with_vectors_that_are_not_finite() -> None:
    """Rows of zeros stay zeros, beside rows that are not."""
    query, key, _ = tensors()
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal() & regard.window(before=9))
    vectors = torch.ones(2, LENGTH)
    vectors[0, 100] = torch.nan
    product = vectors @ matrix
    assert bool(product[:, :, 0, 90:101].isnan().all())
    assert_within(product[:, :, 1], matrix.dense().double().sum(dim=2), 1e-5)


def exact_change(
    tensors: Sequence[Tensor],
    pattern: Pattern,
    masked: Pattern,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return g·(o − o′) in float64, with o′ the output without masked pairs."""
    query, key, value, gradient = tensors
    values = value.double().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    outputs = [
        exact_weights(query, key, allowed, sinks)[0] @ values
        for allowed in (pattern, pattern & ~masked)
    ]
    return (gradient.double() * (outputs[0] - outputs[1])).sum(dim=3)


def of_tensors(**settings: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value = tensors(**settings)
    return query, key, value, torch.randn(query.shape).to(query.dtype)


@pytest.mark.parametrize("name", PATTERNS)
def test_effects_of_keys(name: str, calls: list[str]) -> None:
    given, pattern = of_tensors(key_heads=2), PATTERNS[name]()
    effects = regard.EffectMatrix(*given, pattern=pattern)
    masked = regard.pairs(keys=range(40, 60)) | regard.pairs(queries=range(7), keys=slice(None))
    assert_within(effects.of_keys(masked), exact_change(given, pattern, masked), 3e-5)
    masked = regard.pairs(keys=list(range(1, LENGTH - 5, 2)))
    assert_within(effects.of_keys(slice(1, -5, 2)), exact_change(given, pattern, masked), 3e-5)
    assert len(calls) == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_effects_of_keys_in_half_precision(dtype: torch.dtype, calls: list[str]) -> None:
    given = of_tensors(key_heads=2, dtype=dtype)
    exact = exact_change(given, regard.causal(), regard.prefix(9))
    effects = regard.EffectMatrix(*given, pattern=regard.causal())
    assert_within(effects.of_keys(slice(9)), exact, 3e-5)
    # Where no other key is left, the whole output is lost.
    assert bool((exact[:, :, :9] != 0.0).all())
    part = effects[1:, 1:4, 5:200:3]
    assert_within(part.of_keys(slice(9)), exact[1:, 1:4, 5:200:3], 3e-5)
    assert calls


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_effects_of_keys_beside_a_sink_and_an_offset(size: float, calls: list[str]) -> None:
    query, key, value, gradient = of_tensors(key_heads=2)
    given = (query, key + 5.0 * torch.randn(16), value, gradient)
    sinks = size * torch.tensor([-1.0, 0.0, 0.5, 1.0])
    exact = exact_change(given, regard.causal(), regard.prefix(9), sinks)
    for lse in (None, regard.AttentionMatrix(*given[:2], pattern=regard.causal(), sinks=sinks).lse):
        effects = regard.EffectMatrix(*given, pattern=regard.causal(), sinks=sinks, lse=lse)
        assert_within(effects.of_keys(slice(9)), exact, 2e-4)
    assert calls


def test_effects_of_keys_with_biases_and_numbers_that_are_not_finite(calls: list[str]) -> None:
    """By tiles: kernels have no bias of each pair, and multiply masked keys by 0."""
    given = of_tensors()
    effects = regard.EffectMatrix(
        *given,
        pattern=regard.causal(),
        bias=torch.zeros(1, 1, LENGTH, 1).expand(1, 1, LENGTH, LENGTH),
    )
    exact = exact_change(given, regard.causal(), regard.prefix(9))
    assert_within(effects.of_keys(slice(9)), exact, 3e-5)
    assert not calls
    padded = regard.causal() & regard.padding([200, 200])
    exact = exact_change(given, padded, regard.prefix(9))
    given[1][:, :, 200:] = torch.nan
    assert_within(regard.EffectMatrix(*given, pattern=padded).of_keys(slice(9)), exact, 3e-5)


def test_effects_of_keys_at_many_positions(calls: list[str]) -> None:
    length = 65_536
    torch.manual_seed(0)
    given = tuple(torch.randn(1, 1, length, 8) for _ in range(4))
    pattern = regard.causal() & regard.window(before=63)
    effects = regard.EffectMatrix(*given, pattern=pattern)
    found = effects.of_keys(slice(length - 80, length - 40))
    assert calls
    # The last rows have their keys among the last.
    last = tuple(tensor[:, :, -400:] for tensor in given)
    exact = exact_change(last, pattern, regard.pairs(keys=range(320, 360)))
    assert_within(found[..., -300:], exact[..., -300:], 3e-5)
    assert not found[..., : length - 80].any()


def test_sums_over_columns_alone_are_found_in_one_pass(calls: list[str]) -> None:
    query, key, _ = tensors()
    weights, _ = exact_weights(query, key, regard.causal())
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    entropy, received = matrix.summarize(Entropy(), Received())
    assert not calls
    # Now that the log-sum-exp is known, by one call.
    again = matrix.received()
    assert len(calls) == 1
    assert_within(received.total, weights.sum(dim=2), 1e-4)
    assert_within(again.total, weights.sum(dim=2), 1e-4)
    assert_within(entropy.nats, torch.special.entr(weights).sum(dim=3), 1e-4)
