"""FlexAttention, handed our patterns and biases."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, example, given
from jaxtyping import config
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

import regard
from regard import causal, columns, documents, padding, prefix, window
from regard.attention import flex
from regard.attention.call import Attention
from regard.patterns import Pattern
from regard.patterns.neighbours import Neighbours
from regard.patterns.pattern import Everyone
from regard.positions import alibi, softcap
from tests.attention.cases import Case, case_of, cases, relative, results
from tests.attention.rounding import allowances, assert_close
from tests.strategies import fewer

DOCUMENTS = documents(torch.arange(3 * 131).view(3, 131) // torch.tensor([[17], [40], [1000]]))


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run FlexAttention step by step, which is slow but soon begun; it calls us with odd shapes."""
    torch._dynamo.reset()
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "_compiled", lambda: flex_attention)
        yield
    config.update("jaxtyping_disable", before)


def call_of(case: Case) -> Attention:
    return Attention.checked(case.query, case.key, case.value, dropout=0.0, **case.options)


def check(case: Case) -> None:
    dtype = case.query.dtype
    expected = results(case.to(torch.float64), "reference", lse=False)
    with torch.no_grad():
        output = regard.attend(case.query, case.key, case.value, backend="flex", **case.options)
    assert output.dtype == dtype
    allowed = allowances(case, dtype, rounds_bias=True)
    assert_close({"output": output}, {"output": expected["output"]}, allowed)


def has_neighbours(pattern: Pattern | None) -> bool:
    return pattern is not None and any(isinstance(leaf, Neighbours) for leaf in pattern.leaves())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@fewer
@given(cases())
def test_lowered_without_being_compiled(case: Case) -> None:
    assume(not has_neighbours(case.pattern))
    with uncompiled():
        check(case)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    "pattern",
    [
        None,
        causal(),
        causal() & window(before=17),
        ~causal(),
        causal() & padding([131, 1, 0]),
        causal() | prefix(40),
        columns(every=7) & ~window(before=9, after=9),
        DOCUMENTS & causal(),
    ],
)
@pytest.mark.parametrize("where", [None, torch.arange(131).flip(0)])
def test_lowered_pattern_by_pattern(pattern: Pattern | None, where: Tensor | None) -> None:
    case = case_of(batch=3, heads=2, group=2, queries=131, pattern=pattern, where=where)
    with uncompiled():
        check(case)
        check(replace(case, bias=alibi(4)))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_one_pattern_after_another() -> None:
    """Listed positions are read by the pattern and by the bias."""
    turned = torch.arange(131).flip(0)
    with uncompiled():
        for pattern, where, bias in (
            (causal() | prefix(40), None, alibi(2)),
            (DOCUMENTS & causal(), None, alibi(2)),
            (None, turned, None),
            (causal(), turned, alibi(2)),
        ):
            shapes = {"batch": 3, "heads": 2, "queries": 131}
            check(case_of(**shapes, pattern=pattern, where=where, bias=bias))


@example(case_of(batch=1, heads=1, queries=131, pattern=prefix(5)))
@given(cases(biased=("none",), lengths=(1, 37, 128, 131, 263)))
def test_block_mask_holds_what_the_pattern_allows(case: Case) -> None:
    call = call_of(case)
    mask = flex.block_mask(call)
    if mask is None:
        assert isinstance(call.simple_pattern, Everyone)
        return
    allowed = call.pattern.allows(call.query_positions, range(call.num_keys))
    num_rows, num_columns = -(-call.num_queries // flex.BLOCK), -(-call.num_keys // flex.BLOCK)
    assert mask.to_dense().shape[2:] == (num_rows, num_columns)
    some, whole = spread(mask.to_dense()[:, 0] > 0, call), spread(whole_blocks(mask), call)
    assert not (allowed & ~some).any(), "an allowed pair lies in a block that is skipped"
    assert not (~allowed & whole).any(), "a forbidden pair lies in a block that has no mask"
    with uncompiled():
        batch = torch.arange(len(some))[:, None, None]
        query, key = torch.arange(call.num_queries)[:, None], torch.arange(call.num_keys)
        found = mask.mask_mod(batch, torch.tensor(0), query, key)
    assert not (found ^ allowed).any()


def whole_blocks(mask: object) -> Tensor:
    """Return which blocks are computed without a mask, [batch, rows, columns]."""
    counts, columns = mask.full_kv_num_blocks[:, 0], mask.full_kv_indices[:, 0].long()
    listed = torch.arange(columns.shape[-1]) < counts[..., None]
    return torch.zeros_like(listed).scatter(-1, columns, listed)


def spread(blocks: Tensor, call: Attention) -> Tensor:
    """Turn an entry per block into an entry per pair."""
    pairs = blocks.repeat_interleave(flex.BLOCK, 1).repeat_interleave(flex.BLOCK, 2)
    return pairs[:, : call.num_queries, : call.num_keys]


def test_a_window_lists_few_blocks() -> None:
    case = case_of(batch=1, heads=1, queries=1024, pattern=causal() & window(before=127))
    mask = flex.block_mask(call_of(case))
    # Each block of 128 queries sees its own place and the one before.
    assert mask.to_dense().sum() == 2 * 8 - 1
    assert mask.full_kv_num_blocks.sum() == 0


def test_block_masks_are_remembered() -> None:
    case = case_of(queries=131, pattern=causal() & window(before=17))
    again = case_of(queries=131, seed=1, pattern=causal() & window(before=17))
    assert flex.block_mask(call_of(case)) is flex.block_mask(call_of(again))


def test_training_on_the_cpu_is_refused() -> None:
    case = case_of()
    with pytest.raises(ValueError, match=r"no backward on the CPU.*torch\.no_grad\(\).*\"blocks\""):
        regard.attend(case.query.requires_grad_(), case.key, case.value, backend="flex")
    bias = relative(3, torch.Generator(), torch.float64)
    with pytest.raises(ValueError, match=r"no backward on the CPU.*torch\.no_grad\(\).*\"blocks\""):
        regard.attend(case.key, case.key, case.value, bias=bias, backend="flex")


def test_the_lse_on_the_cpu_is_refused() -> None:
    case = case_of()
    with pytest.raises(
        ValueError, match=r'no log-sum-exp on the CPU; choose backend="blocks" or .*"fused"'
    ):
        regard.attend_with_lse(case.query, case.key, case.value, backend="flex")


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case_of(
                heads=2,
                queries=131,
                key_dim=16,
                value_dim=16,
                dtype=torch.float32,
                pattern=causal() & window(before=17),
                bias=softcap(2.0),
            ),
            id="softcap",
        ),
        pytest.param(
            case_of(
                batch=3,
                heads=2,
                group=2,
                queries=131,
                key_dim=16,
                value_dim=16,
                dtype=torch.float32,
                pattern=DOCUMENTS & causal() & ~window(before=0),
                bias=alibi(4),
            ),
            id="documents, grouped heads, alibi, empty rows",
        ),
    ],
)
def test_compiled(case: Case) -> None:
    check(case)
