"""A text decoder gives for a text in pieces what it gives for it at once, and as a module."""

import copy
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import causal, columns, window
from regard.models import TextDecoder
from regard.patterns import Pattern
from tests.models.cases import assert_matrices_by_hand, lively, off
from tests.models.decoders import (
    LENGTH,
    MODEL_DIM,
    NUM_HEADS,
    ORDERS,
    TOKENS,
    VOCABULARY,
    decoder_of,
    writer_of,
)
from tests.strategies import SEEDS

ROUNDING = 1e4 * torch.finfo(torch.float64).eps
"""What two blocks of sums over up to 80 terms, normed each, may differ by in another order."""

PATTERNS: dict[str, Pattern] = {
    "causal": causal(),
    "window": causal() & window(before=3),
    "window and columns": causal() & (window(before=2) | columns(3)),
}


@st.composite
def pieces(draw: st.DrawFn, total: int) -> list[int]:
    """Draw sizes that add up to a total."""
    cuts = sorted(draw(st.sets(st.integers(1, total - 1), max_size=4)))
    return [stop - start for start, stop in zip([0, *cuts], [*cuts, total], strict=True)]


def fed_in_pieces(
    model: TextDecoder, tokens: Tensor, sizes: list[int], starts: Sequence[int] | None
) -> Tensor:
    caches = model.new_caches()
    found = [model(part, starts=starts, caches=caches) for part in tokens.split(sizes, dim=1)]
    assert [len(cache) for cache in caches] == [tokens.shape[1]] * len(model.layers)
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("order", ORDERS)
def test_a_text_token_by_token_is_the_text_at_once(order: str) -> None:
    pattern = PATTERNS["window and columns"]
    model = decoder_of(ORDERS[order], num_key_heads=2, pattern=pattern)
    with torch.no_grad():
        found = fed_in_pieces(model, TOKENS[:, :7], [1] * 7, None)
        assert off(found, model(TOKENS[:, :7])) < ROUNDING


@given(
    order=st.sampled_from(list(ORDERS)),
    num_key_heads=st.sampled_from([1, 2, 3, 6]),
    name=st.sampled_from(list(PATTERNS)),
    sizes=pieces(LENGTH),
    starts=st.none() | st.lists(st.integers(0, LENGTH - 1), min_size=3, max_size=3),
    graph=st.booleans(),
    seed=SEEDS,
)
def test_a_text_in_pieces_is_the_text_at_once(
    order: str,
    num_key_heads: int,
    name: str,
    sizes: list[int],
    starts: list[int] | None,
    graph: bool,
    seed: int,
) -> None:
    model = decoder_of(ORDERS[order], seed, num_key_heads=num_key_heads, pattern=PATTERNS[name])
    where = None if starts is None else torch.tensor(starts)
    with torch.set_grad_enabled(graph):
        found = fed_in_pieces(model, TOKENS, sizes, where)
        assert off(found, model(TOKENS, starts=where)) < ROUNDING


def test_gradients_flow_through_caches() -> None:
    model = decoder_of("rotary", num_key_heads=2)
    weights = list(model.parameters())
    whole = torch.autograd.grad(model(TOKENS).square().sum(), weights)
    cut = torch.autograd.grad(fed_in_pieces(model, TOKENS, [4, 1, 8], None).square().sum(), weights)
    largest = max(float(one.abs().max()) for one in whole)
    for one, other in zip(cut, whole, strict=True):
        assert float((one - other).abs().max()) < ROUNDING * largest


@pytest.mark.parametrize(
    ("order", "name"), [*((order, "window") for order in ORDERS), ("learned", "causal")]
)
def test_padding_before_the_start_changes_nothing(order: str, name: str) -> None:
    model = writer_of(ORDERS[order], num_key_heads=2, pattern=PATTERNS[name])
    starts = [0, 9, 4]
    together = model(TOKENS, starts=starts)
    texts = model.generate(TOKENS, 3, starts=torch.tensor(starts))
    for row, start in enumerate(starts):
        alone = TOKENS[row : row + 1, start:]
        assert off(together[row : row + 1, start:], model(alone)) < ROUNDING
        assert torch.equal(texts[row : row + 1, start:], model.generate(alone, 3))
        states = zip(model.states(TOKENS, starts=starts), model.states(alone), strict=True)
        assert all(off(x[row : row + 1, start:], y) < ROUNDING for x, y in states)
        matrices = zip(model.matrices(TOKENS, starts=starts), model.matrices(alone), strict=True)
        for padded, plain in matrices:
            dense = padded.dense()[row : row + 1]
            assert off(dense[:, :, start:, start:], plain.dense()) < ROUNDING
            assert not dense[:, :, :, :start].any()


@pytest.mark.parametrize("order", ORDERS)
def test_nobody_looks_ahead(order: str) -> None:
    model = decoder_of(ORDERS[order])
    changed = TOKENS.clone()
    changed[:, 8] = (changed[:, 8] + 1) % VOCABULARY
    before, after = model(TOKENS), model(changed)
    assert off(after[:, :8], before[:, :8]) < ROUNDING
    assert off(after[:, 8:], before[:, 8:]) > 1e-3


def test_the_pattern_of_a_call_narrows_that_of_the_model() -> None:
    narrow = decoder_of(pattern=PATTERNS["window"])(TOKENS)
    assert torch.equal(decoder_of()(TOKENS, pattern=window(before=3)), narrow)
    assert off(decoder_of()(TOKENS), narrow) > 1e-3


@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "rms", "activation": "swiglu", "projection_bias": False}, {"hidden_dim": 0}],
)
@pytest.mark.parametrize("name", PATTERNS)
def test_matrices_by_hand(options: dict[str, object], name: str) -> None:
    model = decoder_of(num_key_heads=2, pattern=PATTERNS[name], **options)
    states = model.states(TOKENS)
    assert_matrices_by_hand(model.layers, states, model.matrices(TOKENS), PATTERNS[name])
    assert torch.equal(model.head(model.norm(states[-1])), model(TOKENS))


def test_attention_alone_makes_the_whole_block() -> None:
    model = decoder_of(hidden_dim=0, projection_bias=False)
    assert not any("feed_forward" in name for name, _ in model.named_parameters())
    states, matrices = model.states(TOKENS), model.matrices(TOKENS)
    for block, before, after, matrix in zip(
        model.layers, states, states[1:], matrices, strict=False
    ):
        value = block.attention.value(block.attention_norm(before))
        value = value.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)
        seen = (matrix.dense() @ value).transpose(1, 2).flatten(start_dim=2)
        assert off(after, before + block.attention.output(seen)) < ROUNDING


# The model as a module.


def assert_tied(model: TextDecoder) -> None:
    assert model.head.weight is model.embedding.tokens.weight
    names = [name for name, _ in model.named_parameters()]
    assert "embedding.tokens.weight" in names
    assert "head.weight" not in names


def test_tied_weights_stay_tied() -> None:
    model = TextDecoder(VOCABULARY, MODEL_DIM, 2, 5)
    assert_tied(model)
    assert_tied(model.to(torch.float64))
    assert_tied(model.bfloat16())
    assert_tied(copy.deepcopy(model))
    assert copy.deepcopy(model).head.weight is not model.head.weight
    other = lively(TextDecoder(VOCABULARY, MODEL_DIM, 2, 5))
    model.float().load_state_dict(other.state_dict())
    assert_tied(model)
    assert torch.equal(model.head.weight, other.head.weight)
    model(TOKENS).square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert_tied(model)
    assert not torch.equal(model.head.weight, other.head.weight)


def test_untied_weights_are_two() -> None:
    model = TextDecoder(VOCABULARY, MODEL_DIM, 2, 5, tied=False)
    assert model.head.weight is not model.embedding.tokens.weight
    names = {name for name, _ in model.named_parameters()}
    assert {"head.weight", "embedding.tokens.weight"} <= names


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_a_state_dict_brings_all_there_is(order: str, tied: bool) -> None:
    model = decoder_of(ORDERS[order], tied=tied)
    other = decoder_of(copy.deepcopy(ORDERS[order]), seed=1, tied=tied)
    assert off(other(TOKENS), model(TOKENS)) > 1e-3
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(TOKENS), model(TOKENS))
    assert torch.equal(copy.deepcopy(model)(TOKENS), model(TOKENS))


def test_dropout_only_in_training() -> None:
    model = decoder_of(dropout=0.3, attention_dropout=0.2)
    assert torch.equal(model(TOKENS), decoder_of()(TOKENS))
    torch.manual_seed(0)
    model.train()
    assert off(model(TOKENS), model(TOKENS)) > 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "position_encoding": "rotary",
            "norm": "rms",
            "activation": "swiglu",
            "projection_bias": False,
        },
        {"position_encoding": "relative", "tied": False},
    ],
)
def test_it_learns(options: dict[str, object]) -> None:
    """Learn some sequences by heart."""
    torch.manual_seed(0)
    model = TextDecoder(VOCABULARY, MODEL_DIM, 2, 5, num_key_heads=1, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses: list[float] = []
    for _ in range(40):
        optimizer.zero_grad()
        logits = model(TOKENS[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size must be at least 1, got 0"),
        ({"model_dim": 0}, "model_dim must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_key_heads": 0}, "num_key_heads must be at least 1, got 0"),
        ({"num_key_heads": 2}, r"num_heads \(5\) must be a multiple of num_key_heads, got 2"),
        ({"key_dim": 0}, "key_dim must be at least 1, got 0"),
        ({"num_heads": 3}, r"model_dim \(20\) must be a multiple of num_heads .*, got 3 heads"),
        ({"num_positions": 0}, "num_positions must be at least 1, got 0"),
        ({"norm": "batch"}, 'norm must be one of "layer", "rms", got "batch"'),
        ({"activation": "tanh"}, 'activation must be one of "relu", .*, got "tanh"'),
        (
            {"position_encoding": "cosine"},
            "position_encoding must be one of \"learned\", .*, got 'cosine'",
        ),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"attention_dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
        (
            {"position_encoding": "rotary", "key_dim": 3},
            "dim must be a positive even number, got 3",
        ),
    ],
)
def test_refusals(changes: dict[str, object], message: str) -> None:
    settings = {"vocabulary_size": 7, "model_dim": 20, "num_layers": 2, "num_heads": 5}
    with pytest.raises(ValueError, match=f"^{message}$"):
        TextDecoder(**settings | changes)


def test_there_must_be_a_cache_for_each_layer() -> None:
    model = decoder_of()
    with pytest.raises(ValueError, match=r"caches must have one cache per layer \(2\), got 1"):
        model(TOKENS, caches=model.new_caches()[:1])
