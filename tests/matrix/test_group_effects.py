"""Effects on groups of keys from outside of them, held against all pairs in float64."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from regard import AttentionMatrix, EffectMatrix, causal, everyone, window
from regard.matrix import group_effects
from regard.matrix.derived import Effects
from regard.matrix.group_effects import effects_from_outside
from regard.patterns import Pattern, documents, neighbours, padding, prefix, strided
from regard.positions import alibi

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 37
GROUPS = (range(3), range(3, 4), range(5, 19), range(12, 30), range(20, 20), range(34, SIZE))
EDGES = torch.randint(0, SIZE, (90, 2), generator=torch.Generator().manual_seed(0))
PATTERNS = {
    "causal": causal(),
    "window": causal() & window(before=6),
    "both sides": window(before=3, after=8),
    "strided": causal() & strided(3),
    "some see nothing": window(before=30) & ~window(before=9, after=9),
    "all": everyone(),
    "prefix": prefix(3) | causal(),
    "documents": causal() & documents(torch.arange(SIZE) // 11),
    "padding": causal() & padding([SIZE, 29]),
    "graph": neighbours(
        torch.randint(0, SIZE, (90, 2), generator=torch.Generator().manual_seed(0))
    ),
}


def tensors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return (
        3.0 * numbers(2, 6, SIZE, 8),
        numbers(2, 2, SIZE, 8),
        numbers(2, 2, SIZE, 5),
        numbers(2, 6, SIZE, 5),
    )


def source_of(matrix: EffectMatrix) -> Effects:
    source = matrix.view.source
    assert isinstance(source, Effects)
    return source


def expected(pattern: Pattern, groups: Sequence[range] = GROUPS) -> Tensor:
    """Write out all pairs."""
    query, key, value, gradient = tensors()
    key, value = (x.repeat_interleave(3, dim=1) for x in (key, value))
    allowed = pattern.dense(torch.arange(SIZE), SIZE)[:, None]
    scores = (query @ key.mT / 8**0.5).masked_fill(~allowed, -torch.inf)
    weights = scores.softmax(dim=-1).nan_to_num()
    output = weights @ value
    effects = weights * (gradient @ value.mT - (gradient * output).sum(dim=3, keepdim=True))
    found: list[Tensor] = []
    for group in groups:
        outside = torch.tensor([query not in group for query in range(SIZE)])
        found.append(effects[:, :, outside][..., list(group)].sum(dim=(2, 3)))
    return torch.stack(found, dim=2)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_sums_are_those_of_all_pairs(
    name: str, dtype: torch.dtype, within: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = PATTERNS[name]
    for pairs in (2**22, 100):
        monkeypatch.setattr(group_effects, "_PAIRS", pairs)
        matrix = EffectMatrix(*tensors(dtype), pattern=pattern)
        found = effects_from_outside(source_of(matrix), GROUPS)
        assert found is not None
        torch.testing.assert_close(found.double(), expected(pattern), rtol=0, atol=within)


def test_nothing_is_rounded_to_half_precision() -> None:
    half = tensors(torch.bfloat16)
    found, wide = (
        effects_from_outside(source_of(EffectMatrix(*given, pattern=causal())), GROUPS)
        for given in (half, [x.float() for x in half])
    )
    torch.testing.assert_close(found, wide, rtol=0, atol=1e-6)
    source = source_of(EffectMatrix(*(x.float() for x in half), pattern=causal()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(effects_from_outside(source, GROUPS), wide, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PATTERNS)
def test_what_is_known_of_rows_is_used_and_kept(name: str) -> None:
    query, key, value, gradient = tensors()
    pattern = PATTERNS[name]
    lse = AttentionMatrix(query, key, pattern=pattern).lse.clone()
    known = EffectMatrix(query, key, value, gradient, pattern=pattern, lse=lse)
    found = effects_from_outside(source_of(known), GROUPS)
    torch.testing.assert_close(found, expected(pattern), rtol=0, atol=1e-12)
    source = source_of(known)
    everything = (range(2), range(6), range(SIZE))
    totals = source.totals_of(*everything).clone()
    fresh = EffectMatrix(query, key, value, gradient, pattern=pattern)
    fresh.dense()
    torch.testing.assert_close(totals, source_of(fresh).totals_of(*everything))
    torch.testing.assert_close(known[1, 2].dense(), fresh[1, 2].dense())


def test_no_groups() -> None:
    found = effects_from_outside(source_of(EffectMatrix(*tensors(), pattern=causal())), [])
    assert found is not None
    assert found.shape == (2, 6, 0)


def test_what_needs_all_pairs_one_by_one_is_left_to_others() -> None:
    query, key, value, gradient = tensors()
    some = {"pattern": causal()}
    for options in (
        {"bias": alibi(6)},
        {"sinks": torch.zeros(6, dtype=torch.float64)},
        {"positions": torch.arange(SIZE).flip(0)},
        {"positions": 4, "pattern": None},
    ):
        matrix = EffectMatrix(query, key, value, gradient, **(some | options))
        assert effects_from_outside(source_of(matrix), GROUPS) is None
    short = EffectMatrix(query[:, :, :9], key, value, gradient[:, :, :9], pattern=causal())
    assert effects_from_outside(source_of(short), GROUPS) is None
    contributions = EffectMatrix(query, key, value, gradient, pattern=causal()).contributions
    assert effects_from_outside(source_of(contributions), GROUPS) is None
