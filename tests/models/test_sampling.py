import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.models.sampling import choose
from tests.strategies import SEEDS

VOCABULARY, NUM_DRAWS = 11, 20_000


def logits_of(seed: int) -> torch.Tensor:
    return 2 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))


def probabilities(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> dict[int, float]:
    """Return how likely each token is that may be drawn, by definition."""
    best = max(logits)
    tokens = sorted(range(len(logits)), key=lambda token: -logits[token])[:top_k]
    chances = {token: math.exp((logits[token] - best) / temperature) for token in tokens}
    total = sum(chances.values())
    kept: dict[int, float] = {}
    for token in tokens:
        if top_p is not None and sum(kept.values()) >= top_p * total:
            break
        kept[token] = chances[token]
    return {token: chance / sum(kept.values()) for token, chance in kept.items()}


def draw(logits: torch.Tensor, seed: int = 0, **options: object) -> list[int]:
    """Choose very often from the same logits."""
    chance = torch.Generator().manual_seed(seed)
    return choose(logits.expand(NUM_DRAWS, -1), generator=chance, **options).tolist()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(
    ("top_k", "top_p"),
    [(None, None), (4, None), (VOCABULARY + 5, None), (None, 0.8), (5, 0.7), (1, None)],
)
def test_tokens_come_as_often_as_they_should(
    temperature: float, top_k: int | None, top_p: float | None
) -> None:
    logits = logits_of(seed=3)
    expected = probabilities(logits.tolist(), temperature, top_k, top_p)
    counts = Counter(draw(logits, temperature=temperature, top_k=top_k, top_p=top_p))
    assert counts.keys() <= expected.keys()
    # Pearson's statistic has the mean f and the variance 2f + (Σ 1/p − (f + 1)² − 2f) / n.
    freedom = len(expected) - 1
    statistic = sum(
        (counts[token] - NUM_DRAWS * chance) ** 2 / (NUM_DRAWS * chance)
        for token, chance in expected.items()
    )
    inverse = sum(1 / chance for chance in expected.values())
    variance = 2 * freedom + (inverse - (freedom + 1) ** 2 - 2 * freedom) / NUM_DRAWS
    assert statistic <= freedom + 5 * math.sqrt(max(variance, 0))


@given(
    seed=SEEDS,
    temperature=st.floats(0.2, 5.0),
    top_k=st.none() | st.integers(1, VOCABULARY),
    top_p=st.none() | st.floats(0.01, 0.99),
)
def test_only_what_is_kept_is_drawn(
    seed: int, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    rows = torch.stack([logits_of(seed + row) for row in range(30)])
    chance = torch.Generator().manual_seed(seed)
    found = choose(rows, temperature=temperature, top_k=top_k, top_p=top_p, generator=chance)
    for row, token in zip(rows.tolist(), found.tolist(), strict=True):
        # One more on the line, where float32 may round the other way.
        wider = None if top_p is None else min(top_p + 1e-5, 1.0)
        assert token in probabilities(row, temperature, top_k, wider)


@pytest.mark.parametrize(
    ("top_p", "num_kept"), [(0.05, 1), (0.25, 1), (0.3, 2), (0.5, 2), (0.51, 3), (0.9, 4), (1.0, 4)]
)
def test_top_p_keeps_the_fewest_tokens(top_p: float, num_kept: int) -> None:
    # Four tokens with a quarter each, exactly, and one that is never drawn.
    logits = torch.tensor([0.0, 0.0, -torch.inf, 0.0, 0.0])
    assert len(set(draw(logits, temperature=0.7, top_p=top_p))) == num_kept


def test_top_p_counts_what_top_k_left() -> None:
    # Of three equal tokens top_k leaves two, of which the first has half of what is left.
    logits = torch.zeros(3)
    assert len(set(draw(logits, temperature=1.0, top_k=2))) == 2
    assert len(set(draw(logits, temperature=1.0, top_k=2, top_p=0.5))) == 1
    assert len(set(draw(logits, temperature=1.0, top_p=0.5))) == 2


@given(seed=SEEDS)
def test_temperature_zero_takes_the_best(seed: int) -> None:
    rows = torch.stack([logits_of(seed), logits_of(seed + 1)])
    best = [max(range(VOCABULARY), key=row.__getitem__) for row in rows.tolist()]
    assert choose(rows).tolist() == best
    assert choose(rows, temperature=0.0, top_k=3, top_p=0.5).tolist() == best


@pytest.mark.parametrize("temperature", [1e-2, 1e-6, 1e-20, 1e-38, 1e-300])
def test_a_low_temperature_almost_always_takes_the_best(temperature: float) -> None:
    logits = torch.tensor([1.0, 3.0, -2.0, 7.0, 6.0])
    # The next best comes with a probability of exp(−1 / temperature) at most, below 1e-43.
    assert set(draw(logits, temperature=temperature)) == {3}


def test_a_high_temperature_draws_all_alike() -> None:
    counts = Counter(draw(logits_of(seed=3), temperature=1e6))
    expected = NUM_DRAWS / VOCABULARY
    assert all(abs(counts[t] - expected) < 6 * math.sqrt(expected) for t in range(VOCABULARY))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_dtype(dtype: torch.dtype) -> None:
    logits = logits_of(seed=3).to(dtype)
    counts = Counter(draw(logits, temperature=1.0))
    for token, chance in probabilities(logits.tolist(), 1.0, None, None).items():
        assert abs(counts[token] - NUM_DRAWS * chance) < 6 * math.sqrt(NUM_DRAWS * chance) + 1


def test_the_generator_decides() -> None:
    logits = logits_of(seed=3)
    first = draw(logits, seed=1, temperature=1.0)
    torch.manual_seed(5)
    assert draw(logits, seed=1, temperature=1.0) == first
    assert draw(logits, seed=2, temperature=1.0) != first


def test_logits_are_left_as_they_are() -> None:
    logits = logits_of(seed=3)[None]
    before = logits.clone()
    choose(logits, temperature=1.0, top_k=2, top_p=0.5)
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.5}, "temperature must be at least 0, got -0.5"),
        ({"temperature": math.nan}, "temperature must be at least 0, got nan"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"top_p": math.nan}, "top_p must be above 0 and at most 1, got nan"),
    ],
)
def test_refusals(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        choose(torch.zeros(1, 3), **options)
