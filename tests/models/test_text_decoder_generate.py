"""Texts that a decoder generates: greedy or drawn, with and without caches, until they stop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.models import TextDecoder
from tests.models.decoders import LENGTH, ORDERS, TOKENS, VOCABULARY, decoder_of, writer_of


def greedy_by_hand(model: TextDecoder, tokens: Tensor, num_tokens: int) -> Tensor:
    for _ in range(num_tokens):
        best = model(tokens)[:, -1].argmax(dim=-1)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    return tokens


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_greedy_takes_the_best_each_time(order: str, cached: bool) -> None:
    model = writer_of(ORDERS[order], num_key_heads=3)
    found = model.generate(TOKENS, 9, cached=cached)
    assert torch.equal(found, greedy_by_hand(model, TOKENS, 9))
    assert len(found[:, LENGTH:].unique()) > 3


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_dtype_of_tokens_stays(dtype: torch.dtype) -> None:
    model = writer_of()
    found = model.generate(TOKENS.to(dtype), 4, temperature=1.0)
    assert found.dtype == dtype
    assert torch.equal(found[:, :LENGTH], TOKENS.to(dtype))


@pytest.mark.parametrize("cached", [True, False])
def test_nothing_to_add(cached: bool) -> None:
    assert torch.equal(writer_of().generate(TOKENS, 0, cached=cached), TOKENS)


def stopped(free: Tensor, prompt: int, stop: set[int]) -> Tensor:
    """Say by definition what becomes of a free continuation if some tokens end it."""
    rows = free.tolist()
    lengths: list[int] = []
    for row in rows:
        ends = [i for i in range(prompt, len(row)) if row[i] in stop]
        end = ends[0] if ends else len(row) - 1
        row[end:] = [row[end]] * (len(row) - end)
        lengths.append(end + 1)
    return torch.tensor(rows)[:, : max(lengths)]


@pytest.fixture(scope="module")
def written() -> tuple[TextDecoder, Tensor]:
    model = writer_of()
    return model, model.generate(TOKENS, 8)


@given(data=st.data(), cached=st.booleans())
def test_stop_tokens_end_a_sequence_and_no_other(
    written: tuple[TextDecoder, Tensor], data: st.DataObject, cached: bool
) -> None:
    model, free = written
    added = sorted(set(free[:, LENGTH:].flatten().tolist()))
    stop = data.draw(st.sets(st.sampled_from([*added, 0, VOCABULARY + 5])))
    found = model.generate(TOKENS, 8, stop=stop, cached=cached)
    assert torch.equal(found, stopped(free, LENGTH, stop))


def test_all_stopped_is_the_end() -> None:
    model = writer_of()
    first = model.generate(TOKENS, 1)
    stop = first[:, -1].tolist()
    assert torch.equal(model.generate(TOKENS, 8, stop=stop), first)
    # Those of the prompt end nothing.
    free = model.generate(TOKENS, 8)
    unused = set(TOKENS.flatten().tolist()) - set(free[:, LENGTH:].flatten().tolist())
    assert unused
    assert torch.equal(model.generate(TOKENS, 8, stop=unused), free)


def test_chance_comes_from_the_generator() -> None:
    model = writer_of("alibi")

    def text(seed: int, **options: object) -> Tensor:
        chance = torch.Generator().manual_seed(seed)
        return model.generate(TOKENS, 12, temperature=1.0, generator=chance, **options)

    assert torch.equal(text(1), text(1))
    assert torch.equal(text(1), text(1, cached=False))
    assert not torch.equal(text(1), text(2))


def test_drawn_tokens_follow_the_logits() -> None:
    model = writer_of()
    num_draws, prompt = 4000, TOKENS[:1, :3]
    chance = torch.Generator().manual_seed(0)
    many = model.generate(
        prompt.expand(num_draws, -1), 1, temperature=1.7, top_k=9, top_p=0.9, generator=chance
    )
    scores = (model(prompt)[0, -1] / 1.7).detach()
    best = scores.topk(9)
    chances = best.values.softmax(dim=-1)
    kept = int((chances.cumsum(dim=-1) < 0.9).sum()) + 1
    chances = chances[:kept] / chances[:kept].sum()
    counts = torch.bincount(many[:, -1], minlength=VOCABULARY)[best.indices[:kept]]
    assert counts.sum() == num_draws
    expected = num_draws * chances
    assert ((counts - expected).abs() < 5 * expected.sqrt()).all()


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_ways_of_being_greedy(options: dict[str, float]) -> None:
    model = writer_of()
    found = model.generate(TOKENS, 7, **{"temperature": 1.0} | options)
    assert torch.equal(found, greedy_by_hand(model, TOKENS, 7))


@pytest.mark.parametrize("cached", [True, False])
def test_a_text_longer_than_the_table(cached: bool) -> None:
    model = writer_of("learned", num_positions=LENGTH + 2)
    # The last token added needs no position.
    assert model.generate(TOKENS, 3, cached=cached).shape == (3, LENGTH + 3)
    message = (
        "positions must be from 0 to 14, got 15: increase num_positions, "
        "or use an encoding without a table: sinusoidal, Rotary or alibi"
    )
    with pytest.raises(IndexError, match=message):
        model.generate(TOKENS, 4, cached=cached)


@pytest.mark.parametrize(
    ("width", "num_tokens", "options", "message"),
    [
        (0, 3, {}, "tokens must have at least one position, got none"),
        (5, -1, {}, "num_tokens must be at least 0, got -1"),
        (5, 3, {"temperature": -1.0}, "temperature must be at least 0, got -1.0"),
        (5, 3, {"top_k": 0}, "top_k must be at least 1, got 0"),
        (5, 3, {"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        (5, 3, {"starts": [0, -1, 0]}, "padding: starts must be at least 0, got -1"),
    ],
)
def test_generate_refuses(
    width: int, num_tokens: int, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        writer_of().generate(TOKENS[:, :width], num_tokens, **options)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("order", ["learned", "sinusoidal", "rotary"])
def test_there_must_be_a_start_for_each_sequence(order: str) -> None:
    with pytest.raises(ValueError, match=r"start.* got 2 .*batch of 3"):
        decoder_of(ORDERS[order])(TOKENS, starts=[0, 1])


def test_generating_leaves_no_graph() -> None:
    model = writer_of()
    model.generate(TOKENS, 2)
    assert torch.is_grad_enabled()
    assert all(weight.grad is None for weight in model.parameters())
