"""What is defined though it looks as if it were not: NaN, empty rows, axes of size zero."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import regard
from regard import AttentionMatrix, causal, padding, strided, window
from regard.matrix import Between, Hits, Mass, TopKeys
from regard.patterns import Pattern, everyone
from regard.positions import alibi, from_tensor
from tests.attention.cases import case_of
from tests.attention.rounding import allowances
from tests.matrix.cases import (
    allowance,
    assert_within,
    dense_lse,
    dense_weights,
    lse_tolerance,
    matrix_of,
    tolerance,
)
from tests.matrix.expected import (
    NOBODY,
    check,
    check_part,
    dense_rollout,
    normal,
    product_allowance,
    rollout_tolerance,
)
from tests.matrix.reductions import every_reduction


@pytest.mark.parametrize("bias", [None, alibi(3)])
@pytest.mark.parametrize("pattern", [everyone(), causal() & window(before=5)])
def test_nan_in_a_query_stays_in_its_row(pattern: Pattern, bias: object) -> None:
    case = case_of(queries=131, pattern=pattern, bias=bias)
    clean = dense_weights(case)
    allowed = allowance(case, torch.float64)
    case.query[1, 2, 70, 3] = torch.nan
    matrix = matrix_of(case)
    found = matrix.dense()
    may = pattern.allows([70], range(131))[0]
    assert bool(found[1, 2, 70, may].isnan().all())
    assert bool(matrix.lse[1, 2, 70].isnan())
    found[1, 2, 70] = clean[1, 2, 70]
    assert_within(found, clean, allowed)
    row = matrix[1, 2, 69]
    assert_within(row, clean[1, 2, 69], allowed[1, 2, 69])


@pytest.mark.parametrize(
    "look",
    [lambda a: a.dense(), lambda a: a[..., :17].dense()],
    ids=["all", "some columns"],
)
def test_nan_in_a_query_leaves_a_given_log_sum_exp_alone(
    look: Callable[[AttentionMatrix], Tensor],
) -> None:
    # Nobody but the given numbers knows of these sinks.
    sinks = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    case = case_of()
    exact, lse = dense_weights(case, sinks), dense_lse(case, sinks)
    allowed = allowance(case, torch.float64, sinks)
    case.query[1, 2, 4] = lse[1, 2, 4] = torch.nan
    matrix = matrix_of(case, lse=lse)
    found = look(matrix)
    width = found.shape[-1]
    found[1, 2, 4] = exact[1, 2, 4, :width]
    assert_within(found, exact[..., :width], allowed[..., :width])
    assert_within(matrix.lse, lse, 0.0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "pattern", [padding([100, 131]), ~window(before=0, after=0) & padding([100, 131])]
)
def test_a_key_that_is_forbidden_to_all_does_no_harm(
    pattern: Pattern, biased: bool, bad: float
) -> None:
    case = case_of(queries=131, pattern=pattern, bias=alibi(3) if biased else None)
    clean, allowed = dense_weights(case), allowance(case, torch.float64)
    lse, off = dense_lse(case), lse_tolerance(case, torch.float64)
    case.key[0, 1, 100:] = bad
    matrix = matrix_of(case)
    assert_within(matrix[..., 99:105].dense(), clean[..., 99:105], allowed[..., 99:105])
    assert_within(matrix_of(case).dense(), clean, allowed)
    assert_within(matrix.lse, lse, off)


def test_nan_in_a_query_that_may_look_at_nothing() -> None:
    case = case_of(queries=7, keys=5, pattern=causal())
    case.query[0, 0, 0] = torch.nan
    assert not bool(matrix_of(case).dense()[0, 0, 0].any())
    assert_within(matrix_of(case).lse, dense_lse(case), lse_tolerance(case, torch.float64))


@pytest.mark.parametrize("sinks", [None, torch.zeros(3, dtype=torch.float64)])
@pytest.mark.parametrize("keys", [37, 1031])
def test_empty_rows_are_zeros(keys: int, sinks: Tensor | None) -> None:
    case = case_of(queries=37, keys=keys, pattern=NOBODY)
    matrix = matrix_of(case, sinks)
    assert torch.equal(matrix.dense(), torch.zeros(2, 3, 37, keys, dtype=torch.float64))
    assert not bool((matrix @ normal(keys, 2)).any())
    assert not bool((normal(2, 37) @ matrix).any())
    assert not bool(matrix[..., :5].dense().any())
    lowest = torch.full((2, 3, 37), -torch.inf if sinks is None else 0.0, dtype=torch.float64)
    assert torch.equal(matrix.lse, lowest)
    assert torch.equal(matrix_of(case, sinks).lse, lowest)


def test_rows_that_a_bias_empties() -> None:
    bias = normal(1, 1, 37, 37)
    bias[:, :, 5] = -torch.inf
    bias[:, :, 7:, 3:] = -torch.inf
    case = case_of(bias=bias)
    check(matrix_of(case), case, None)
    assert not bool(matrix_of(case)[:, :, 5].any())
    assert bool((matrix_of(case).lse[:, :, 5] == -torch.inf).all())


@pytest.mark.parametrize("known", [False, True])
def test_a_mask_of_lowest_numbers(known: bool) -> None:
    # Many write a mask with the lowest number there is in place of −inf.
    bias = torch.zeros(1, 1, 37, 37).masked_fill(
        ~causal().allows(range(37), range(37)), torch.finfo(torch.float32).min
    )
    bias[:, :, 5] = torch.finfo(torch.float32).min
    case = case_of(dtype=torch.float32, bias=bias)
    _, lse = regard.attend_with_lse(case.query, case.key, case.value, bias=bias)
    matrix = matrix_of(case, lse=lse if known else None)
    found = matrix.dense()
    # The row in which all have it looks at nothing, or at all alike.
    row, found[:, :, 5] = found[:, :, 5].clone(), 0.0
    sums = row.sum(dim=-1)
    off = 38 * torch.finfo(torch.float32).eps
    assert bool((row == 0).all()) or bool(((sums - 1).abs() <= off).all())
    assert bool((matrix @ case.value).isfinite().all())
    may = causal().allows(range(37), range(37))
    plain = replace(case, bias=None, pattern=causal())
    exact, allowed = dense_weights(plain), allowance(plain, torch.float32)
    more = float(allowances(plain, torch.float32)["lse"].max()) if known else 0.0
    exact[:, :, 5] = 0.0
    assert_within(found, exact, allowed + more * exact)
    assert not bool(found[..., ~may].any())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("of_scores", [torch.float32, torch.float64])
def test_the_lowest_number_of_a_bias_masks_weights_and_counts(
    dtype: torch.dtype, of_scores: torch.dtype
) -> None:
    case = case_of(queries=37, dtype=of_scores)
    masked = ~causal().allows(range(37), range(37))
    masked[5] = True
    added = torch.randn(3, 37, 37, dtype=dtype, generator=torch.Generator().manual_seed(0))
    biases = (
        from_tensor(added.masked_fill(masked, low)[None])
        for low in (-torch.inf, torch.finfo(dtype).min)
    )
    infinite, lowest = (AttentionMatrix(case.query, case.key, bias=bias) for bias in biases)
    assert torch.equal(lowest.dense(), infinite.dense())
    assert not bool(lowest[:, :, 5].any())
    assert torch.equal(lowest.received().queries, infinite.received().queries)
    assert lowest.received().queries[0, 0].tolist() == (~masked).sum(dim=0).tolist()
    (hits,) = lowest.summarize(Hits(regard.pairs(queries=[2, 3], keys=[0, 9])))
    assert hits.rows.unique().tolist() == [2]
    (hits,) = lowest.summarize(Hits(regard.pairs(queries=[2, 5], keys=[4, 9])))
    assert hits.rows.unique().tolist() == [0]


def test_keys_of_no_size_are_looked_at_alike() -> None:
    case = case_of(heads=3, group=2, queries=5, keys=7, key_dim=0)
    exact = torch.full((2, 6, 5, 7), 1 / 7, dtype=torch.float64)
    assert_within(matrix_of(case).dense(), exact, tolerance(case, torch.float64))


@pytest.mark.parametrize("group", [1, 3])
def test_tensors_that_do_not_lie_in_one_piece(group: int) -> None:
    case = case_of(heads=2, group=group, keys=41, pattern=causal())
    query = case.query.transpose(1, 2).contiguous().transpose(1, 2)
    case = replace(case, query=query, key=case.key[:1].expand(2, -1, -1, -1))
    check(matrix_of(case), case, None)
    part = (slice(None), slice(1, None), slice(3, 30, 2))
    allowed = allowance(case, torch.float64)
    check_part(matrix_of(case), part, dense_weights(case), allowed)


@pytest.mark.parametrize("threads", [2, 8])
def test_several_threads(threads: int) -> None:
    case = case_of(heads=2, group=3, queries=131, pattern=causal(), bias=alibi(6))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(matrix_of(case), case, None)
        assert_within(matrix_of(case).lse, dense_lse(case), lse_tolerance(case, torch.float64))
    finally:
        torch.set_num_threads(before)


def test_a_matrix_made_in_inference_mode_can_be_looked_at_later() -> None:
    case = case_of(pattern=causal())
    with torch.inference_mode():
        matrix = matrix_of(case)
        known = matrix_of(case, lse=dense_lse(case))
    check(known, case, None)
    check(matrix, case, None)


def test_autocast_does_not_round_effects_or_summaries() -> None:
    case = case_of(queries=67, pattern=causal(), dtype=torch.float32)
    value, gradient = torch.randn_like(case.key), torch.randn_like(case.query)
    groups = torch.arange(67) % torch.tensor([[3], [5]]) == 0
    of_batch = groups.expand(len(case.query), 2, 67)

    def numbers(*, autocast: bool) -> list[Tensor]:
        parts = case.query, case.key, value, gradient
        weights, effects = matrix_of(case), regard.EffectMatrix(*parts, pattern=causal())
        reductions = Between(of_batch, of_batch), Mass({"a": groups[0]})
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            inside = effects.dense()
            # Top keys need tiles, and so does all beside them.
            results = [*weights.summarize(*reductions, TopKeys(2)), *effects.summarize(*reductions)]
        return [inside, effects.dense(), *(x for one in results for x in one.tensors.values())]

    for rounded, exact in zip(numbers(autocast=True), numbers(autocast=False), strict=True):
        torch.testing.assert_close(rounded, exact)


@pytest.mark.parametrize("pattern", [everyone(), window(before=3, after=1)])
def test_keys_without_features_are_attended_to_alike(pattern: Pattern) -> None:
    nothing = torch.zeros(1, 2, 40, 0)
    matrix = regard.AttentionMatrix(nothing, nothing, pattern=pattern)
    allowed = pattern.allows(range(40), range(40))
    exact = allowed / allowed.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(matrix.received().total, exact.sum(dim=-2).expand(1, 2, 40))
    entropy = torch.special.entr(exact).sum(dim=-1).expand(1, 2, 40)
    torch.testing.assert_close(matrix.entropy().nats, entropy)
    _, lse = regard.attend_with_lse(nothing, nothing, nothing, pattern=pattern)
    torch.testing.assert_close(lse, allowed.sum(dim=-1).float().log().expand(1, 2, 40))


def test_autocast_does_not_round_what_is_there_already() -> None:
    case = case_of(queries=67, pattern=causal(), dtype=torch.float32)
    matrix, exact = matrix_of(case), dense_weights(case)
    share = tolerance(case, torch.float32)
    values, vectors = normal(67, 5, dtype=torch.float32), normal(5, 67, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights, left, right = matrix.dense(), vectors @ matrix, matrix @ values
        passed = regard.rollout([matrix, matrix], tokens=[3, 66])
    assert_within(weights, exact, allowance(case, torch.float32))
    bound = exact @ values.double().abs()
    allowed = product_allowance(bound, values, 67, share, torch.float32)
    assert_within(right, exact @ values.double(), allowed)
    bound = vectors.double().abs() @ exact
    allowed = product_allowance(bound, vectors, 67, share, torch.float32)
    assert_within(left, vectors.double() @ exact, allowed)
    expected = dense_rollout([exact, exact], [3, 66], 0.5, "mean")
    assert_within(passed, expected, rollout_tolerance([case, case]))


@pytest.mark.parametrize("pattern", [None, causal(), strided(3) | window(before=2)])
@pytest.mark.parametrize(
    ("batch", "queries", "keys"), [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 0, 0), (0, 0, 0)]
)
@pytest.mark.parametrize("sunk", [False, True])
def test_nothing_at_all(
    batch: int, queries: int, keys: int, pattern: Pattern | None, sunk: bool
) -> None:
    case = case_of(batch=batch, heads=3, queries=queries, keys=keys, where=0, pattern=pattern)
    sinks = torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64) if sunk else None
    matrix = matrix_of(case, sinks)
    assert matrix.shape == (batch, 3, queries, keys)
    assert matrix.dense().shape == (batch, 3, queries, keys)
    product = matrix @ normal(keys, 2)
    assert torch.equal(product, torch.zeros(batch, 3, queries, 2, dtype=torch.float64))
    sums = normal(2, queries) @ matrix
    assert torch.equal(sums, torch.zeros(batch, 3, 2, keys, dtype=torch.float64))
    assert matrix[..., :1].dense().shape == (batch, 3, queries, min(1, keys))
    assert torch.equal(matrix.lse, dense_lse(case, sinks))


NOTHING = slice(0, 0)
ALL = slice(None)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    "where",
    [
        (NOTHING,),
        (ALL, NOTHING),
        (1, NOTHING),
        (NOTHING, 1),
        (..., NOTHING, ALL),
        (..., NOTHING),
        (1, 2, ALL, NOTHING),
        (NOTHING, NOTHING, NOTHING, NOTHING),
    ],
)
def test_parts_with_nothing_in_them(where: tuple[object, ...], written: bool) -> None:
    """Products are those of `torch.matmul` with zeros of the same shape, and so are summaries."""
    matrix = matrix_of(case_of(batch=2, heads=3, queries=5, keys=7, dtype=torch.float32))
    part = (AttentionMatrix.from_weights(matrix.dense()) if written else matrix)[where]
    zeros = torch.zeros(part.shape)
    *lead, queries, keys = part.shape
    assert torch.equal(part.dense(), zeros)
    for values in (torch.ones(keys), torch.ones(keys, 2), torch.ones(*lead, keys, 2)):
        assert torch.equal(part @ values, zeros @ values)
    for vectors in (torch.ones(queries), torch.ones(2, queries), torch.ones(*lead, 2, queries)):
        assert torch.equal(vectors @ part, vectors @ zeros)
    for found in part.summarize(*every_reduction(7)):
        for name, tensor in found.tensors.items():
            assert tensor.shape == tuple(len(found.labels[axis]) for axis in found.axes(name))
