"""Effects against autograd and against their definition, in float64 and float32."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

import regard
from regard import AttentionMatrix, EffectMatrix
from regard.matrix import (
    Between,
    Distance,
    Edges,
    EffectiveKeys,
    Entropy,
    Hits,
    Mass,
    Offsets,
    Pool,
    Received,
    TopKeys,
    accumulate,
)
from regard.patterns import causal, documents, everyone, padding, strided, window
from regard.versions import Overwritten
from tests.attention.cases import Case, case_of
from tests.matrix.cases import dense_scores
from tests.matrix.known import matrices
from tests.strategies import fewer

NEAR = {torch.float64: 1e-11, torch.float32: 2e-5}
"""How far an effect may be off, of the largest product of a gradient and a value."""


def effects_of(case: Case, sinks: Tensor | None = None) -> EffectMatrix:
    return EffectMatrix(case.query, case.key, case.value, case.grad, sinks=sinks, **case.options)


def by_autograd(case: Case, sinks: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return effects, as gradients of the scores, and contributions, of eager attention."""
    exact = case.to(torch.float64)
    scores = dense_scores(case).requires_grad_()
    padded = scores
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(*scores.shape[:3], 1)
        padded = torch.cat([scores, column], dim=-1)
    empty = (padded == -torch.inf).all(dim=-1, keepdim=True)
    weights = padded.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
    weights = weights[..., : scores.shape[-1]]
    value = exact.value.repeat_interleave(exact.query.shape[1] // exact.value.shape[1], dim=1)
    target = ((weights @ value) * exact.grad).sum()
    (effects,) = torch.autograd.grad(target, scores)
    contributions = weights.detach() * (exact.grad @ value.mT)
    return effects.masked_fill(scores == -torch.inf, 0.0).detach(), contributions


def largest(case: Case) -> float:
    group = case.query.shape[1] // case.value.shape[1]
    value = case.value.double().repeat_interleave(group, dim=1)
    return float((case.grad.double().abs() @ value.abs().mT).max()) + 1e-300


def near(found: Tensor, expected: Tensor, case: Case, more: float = 1.0) -> None:
    assert found.shape == expected.shape
    assert not found.isnan().any()
    gap = float((found.double() - expected).abs().max()) if found.numel() else 0.0
    assert gap <= more * NEAR[found.dtype] * largest(case)


@fewer
@given(drawn=matrices())
def test_effects_are_gradients_of_scores(drawn: tuple[Case, Tensor | None]) -> None:
    case, sinks = drawn
    expected, contributions = by_autograd(case, sinks)
    effects = effects_of(case, sinks)
    near(effects.dense(), expected, case)
    near(effects.contributions.dense(), contributions, case)
    # Parts before the whole: what a row needs of all of its keys is found first.
    anew = effects_of(case, sinks)
    near(anew[:, :, :, ::2].dense(), expected[..., ::2], case)
    near(anew[-1, 0, -1], expected[-1, 0, -1], case)
    near(anew.columns([0]), expected[..., [0]], case)


def test_rows_sum_up_to_nothing_and_contributions_to_what_the_output_does() -> None:
    case = case_of(group=2, queries=67, pattern=causal())
    effects = effects_of(case)
    output = regard.attend(case.query, case.key, case.value, pattern=causal())
    near(effects.dense().sum(dim=3), torch.zeros(2, 6, 67, dtype=torch.float64), case)
    near(effects.contributions.dense().sum(dim=3), (output * case.grad).sum(dim=3), case)
    assert isinstance(effects.weights[0, 1], AttentionMatrix)
    weights = AttentionMatrix(case.query, case.key, pattern=causal())
    near(effects[0, 1, 5:].weights.dense(), weights[0, 1, 5:].dense(), case)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    case = case_of(queries=67, pattern=causal(), dtype=dtype)
    effects = effects_of(case)
    assert effects.dtype == torch.float32
    near(effects.dense(), by_autograd(case)[0], case)


class TestReductions:
    """Each reduction of effects against the same of all effects in float64."""

    @pytest.fixture(
        params=[
            {"queries": 37},
            {"queries": 61, "keys": 131, "group": 2, "pattern": causal()},
            {"queries": 31, "keys": 401, "heads": 2, "pattern": window(23) | strided(64)},
            {"queries": 37, "pattern": causal() & padding([37, 20])},
        ]
    )
    def case(self, request: Any) -> Case:
        return case_of(**request.param)

    def found(self, case: Case, reduction: Any) -> tuple[Any, Tensor]:
        (found,) = effects_of(case).summarize(reduction)
        return found, by_autograd(case)[0]

    def test_pool(self, case: Case) -> None:
        found, expected = self.found(case, Pool(7))
        largest_of, _ = self.found(case, Pool(7, "max"))
        for row, top in enumerate(range(0, expected.shape[2], found.height)):
            for column, left in enumerate(range(0, expected.shape[3], found.width)):
                cell = expected[:, :, top : top + found.height, left : left + found.width]
                near(found.cells[..., row, column], cell.mean(dim=(2, 3)), case)
                # A row of two keys has two effects of one size: rounding decides between them.
                cell, top_of_cell = cell.flatten(2), largest_of.cells[..., row, column]
                sizes, places = cell.abs().topk(min(2, cell.shape[2]), dim=2)
                near(top_of_cell.abs(), sizes[..., 0], case)
                signed = cell.gather(2, places[..., :1])[..., 0]
                tied = sizes[..., 0] - sizes[..., -1] < 1e-6 * sizes[..., 0]
                tied = tied & (cell.shape[2] > 1)
                near(top_of_cell.where(~tied, signed), signed, case)

    @pytest.mark.parametrize("count", [1, 3, 70])
    def test_top_keys(self, case: Case, count: int) -> None:
        found, expected = self.found(case, TopKeys(count))
        count = min(count, expected.shape[3])
        order = expected.abs().sort(dim=3, descending=True).indices[..., :count]
        # Two keys alone have effects of one size.
        near(found.weights[..., :count].abs(), expected.gather(3, order).abs(), case)
        there = expected.gather(3, found.keys[..., :count].clamp_min(0))
        near(found.weights[..., :count], there.masked_fill(found.keys[..., :count] < 0, 0.0), case)

    @pytest.mark.parametrize("limit", [5, 100_000])
    def test_edges(self, case: Case, limit: int) -> None:
        found, expected = self.found(case, Edges(0.3, limit))
        assert found.total == int((expected.abs() >= 0.3).sum()) > 5
        sizes = expected.abs().flatten().sort(descending=True).values[: min(limit, found.total)]
        near(found.weights.abs(), sizes, case)
        places = (found.batch, found.heads, found.queries, found.keys)
        near(found.weights, expected[places], case)
        assert bool((found.weights < 0).any())

    def test_received(self, case: Case) -> None:
        found, expected = self.found(case, Received())
        near(found.total, expected.sum(dim=2), case, 100)

    def test_offsets(self, case: Case) -> None:
        found, expected = self.found(case, Offsets(3))
        rows, keys = expected.shape[2:]
        offset = torch.arange(keys) - torch.arange(keys - rows, keys)[:, None]
        for place, one in enumerate(range(-3, 4)):
            mean = expected.masked_fill(offset != one, 0.0).sum(dim=(2, 3)) / rows
            near(found.near[..., place], mean, case)
        beyond = expected.masked_fill(offset.abs() <= 3, 0.0).sum(dim=(2, 3)) / rows
        near(found.beyond, beyond, case)

    def test_mass_and_between(self, case: Case) -> None:
        stops = torch.arange(case.key.shape[2]) % 3 == 0
        found, expected = self.found(case, Mass({"stops": stops, "near": window(2)}))
        rows, keys = expected.shape[2:]
        near(found.share[..., 0], expected[..., stops].sum(dim=(2, 3)) / rows, case)
        offset = torch.arange(keys) - torch.arange(keys - rows, keys)[:, None]
        close = (offset <= 0) & (offset >= -2)
        near(found.share[..., 1], (expected * close).sum(dim=(2, 3)) / rows, case)
        groups = stops.expand(2, 1, -1)
        between, _ = self.found(case, Between(torch.ones(2, 1, rows), groups.double()))
        near(between.weights[..., 0, 0], expected[..., stops].sum(dim=(2, 3)), case, 100)

    def test_hits(self, case: Case) -> None:
        # Two keys alone have effects of one size, and one has none.
        (found,) = effects_of(case)[:, :, 2:].summarize(Hits(strided(3)))
        expected = by_autograd(case)[0][:, :, 2:]
        rows, keys = expected.shape[2:]
        offset = torch.arange(keys - rows, keys) - expected.abs().argmax(dim=3)
        assert torch.equal(found.hits, (offset % 3 == 0).sum(dim=2))

    def test_in_parts(self, case: Case) -> None:
        """Rows may be dealt out to several passes, and columns left out."""
        effects, expected = effects_of(case), by_autograd(case)[0]
        for reduction in (Pool(7, "max"), TopKeys(2), Edges(0.3), Received()):
            states = []
            for some in (slice(0, 20), slice(20, None)):
                part = effects[:, :, some]
                (state,) = accumulate(part.view, [reduction])
                states.append(reduction.finish(state))
            (whole,) = effects.summarize(reduction)
            if isinstance(reduction, TopKeys):
                both = torch.cat([state.weights for state in states], dim=2)
                near(both, whole.weights.double(), case)
        columns = effects[..., 1::3].top(1)
        sizes = expected[..., 1::3].abs().amax(dim=3)
        near(columns.weights[..., 0].abs(), sizes, case)

    def test_states_are_merged_by_size(self, case: Case) -> None:
        effects = effects_of(case)
        reduction = Pool(7, "max")
        (whole,) = accumulate(effects.view, [reduction])
        empty = reduction.start(effects.view)
        merged = reduction.finish(reduction.merge(empty, whole))
        assert torch.equal(merged.cells, reduction.finish(whole).cells)
        assert bool((merged.cells < 0).any())


@pytest.mark.parametrize("reduction", [Entropy(), EffectiveKeys(), Distance()])
def test_reductions_of_weights_are_refused(reduction: Any) -> None:
    name = type(reduction).__name__
    with pytest.raises(ValueError, match=f"{name} needs weights, not effects or norms"):
        effects_of(case_of()).summarize(reduction)


class TestOfKeys:
    """The effect of a set of keys against attention without them, in float64."""

    def expected(self, case: Case, sinks: Tensor | None, gone: Tensor) -> Tensor:
        """Return g·(o − o′), with all scores written down."""
        scores = dense_scores(case)
        value = case.value.repeat_interleave(case.query.shape[1] // case.value.shape[1], dim=1)

        def output(scores: Tensor) -> Tensor:
            if sinks is not None:
                column = sinks[:, None, None].expand(*scores.shape[:3], 1)
                scores = torch.cat([scores, column], dim=-1)
            empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
            weights = scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
            return weights[..., : value.shape[2]] @ value

        change = output(scores) - output(scores.masked_fill(gone, -torch.inf))
        return (change * case.grad).sum(dim=3)

    @pytest.mark.parametrize("sunk", [False, True])
    def test_a_slice(self, sunk: bool) -> None:
        case = case_of(queries=61, group=2, pattern=causal())
        sinks = torch.randn(6, dtype=torch.float64) if sunk else None
        gone = torch.zeros(61, dtype=torch.bool)
        gone[:20] = True
        expected = self.expected(case, sinks, gone)
        effects = effects_of(case, sinks)
        near(effects.of_keys(slice(20)), expected, case)
        near(effects[1, 2, 30:].of_keys(slice(20)), expected[1, 2, 30:], case)

    def test_a_pattern(self) -> None:
        case = case_of(queries=37, pattern=causal())
        gone = ~window(4).allows(range(37), range(37))
        near(effects_of(case).of_keys(~window(4)), self.expected(case, None, gone), case)

    def test_all_keys_leave_the_whole_output(self) -> None:
        case = case_of(queries=37)
        effects = effects_of(case)
        whole = effects.contributions.dense().sum(dim=3)
        near(effects.of_keys(everyone()), whole, case)
        near(effects.of_keys(slice(0, 0)), torch.zeros_like(whole), case)

    def test_what_hardly_anything_is_left_of(self) -> None:
        """Where nearly all weight is taken away, nothing cancels."""
        case = replace(case_of(queries=7, batch=1, heads=1), scale=40.0)
        gone = torch.eye(7, dtype=torch.bool)[torch.arange(7) * 0]
        near(effects_of(case).of_keys(slice(1)), self.expected(case, None, gone), case, 1e3)

    def test_documents_of_a_batch(self) -> None:
        case = case_of(queries=13)
        ids = torch.arange(26).reshape(2, 13) // 4
        gone = documents(ids).allows(range(13), range(13))[:, None]
        expected = self.expected(case, None, gone)
        near(effects_of(case).of_keys(documents(ids)), expected, case)

    def test_neither_slice_nor_pattern(self, unchecked: None) -> None:
        with pytest.raises(TypeError, match="keys must be a slice or a pattern, got list"):
            effects_of(case_of()).of_keys([1, 2])  # pyright: ignore[reportArgumentType]


class TestRefusals:
    def test_shapes(self, unchecked: None) -> None:
        case = case_of(group=2)
        with pytest.raises(ValueError, match=r"value must be .* of shape \[2, 3, 37, 5\]"):
            EffectMatrix(case.query, case.key, case.value[:, :1], case.grad)
        with pytest.raises(ValueError, match=r"gradient must be .* of shape \[2, 6, 37, 5\]"):
            EffectMatrix(case.query, case.key, case.value, case.grad[..., :3])
        with pytest.raises(TypeError, match="gradient must be a tensor, got NoneType"):
            EffectMatrix(case.query, case.key, case.value, None)  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize("name", ["value", "grad", "query"])
    def test_what_was_written_over(self, name: str) -> None:
        case = case_of()
        effects = effects_of(case)
        getattr(case, name).add_(1.0)
        word = "gradient" if name == "grad" else name
        for read in (
            effects.dense,
            lambda: effects.contributions,
            lambda: effects.of_keys(slice(0, 3)),
        ):
            with pytest.raises(Overwritten, match=f"{word} was modified in place"):
                read()

    def test_rollout_is_of_weights(self, unchecked: None) -> None:
        with pytest.raises(TypeError, match="must be AttentionMatrix objects, got EffectMatrix"):
            regard.rollout([effects_of(case_of())], tokens=[0])  # pyright: ignore[reportArgumentType]
