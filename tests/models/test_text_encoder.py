import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard import everyone, padding, window
from regard.models import TextEncoder
from regard.models.stack import PositionEncoding
from regard.positions import Relative, Rotary, alibi, softcap
from tests.models.cases import assert_matrices_by_hand, lively, off, tokens_of

VOCABULARY, MODEL_DIM, NUM_HEADS, LENGTH = 37, 20, 5, 11
TOKENS = tokens_of(3, LENGTH, vocabulary=VOCABULARY)
SHUFFLED = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(0)).tolist()

ROUNDING = 1e4 * torch.finfo(torch.float64).eps
"""What three blocks of sums over up to 80 terms, normed each, may differ by in another order."""


def encoder_of(positions: PositionEncoding = "learned", **options: object) -> TextEncoder:
    settings = {"hidden_dim": 31, "num_positions": 13} | options
    model = TextEncoder(
        VOCABULARY, MODEL_DIM, 3, NUM_HEADS, position_encoding=positions, **settings
    )
    return lively(model).double().eval()


def change_by(model: TextEncoder, permutation: list[int]) -> float:
    """Return how far the vectors of permuted tokens are from the permuted vectors."""
    where = torch.tensor(permutation)
    return off(model(TOKENS[:, where]), model(TOKENS)[:, where])


@given(permutation=st.permutations(range(LENGTH)))
def test_without_positions_order_is_unknown(permutation: list[int]) -> None:
    with torch.no_grad():
        assert change_by(encoder_of(None), permutation) < ROUNDING


def test_a_softcap_tells_nothing_of_order() -> None:
    assert change_by(encoder_of(softcap(2.0)), SHUFFLED) < ROUNDING


@pytest.mark.parametrize(
    "positions",
    [
        "learned",
        "sinusoidal",
        "rotary",
        "alibi",
        "relative",
        Rotary(2, base=100.0, interleaved=True),
        alibi(NUM_HEADS),
        Relative(NUM_HEADS, num_buckets=6, max_distance=5),
    ],
)
def test_with_positions_order_counts(positions: PositionEncoding) -> None:
    model = encoder_of(positions)
    assert change_by(model, SHUFFLED) > 1e-3
    assert change_by(model, list(range(LENGTH))) < ROUNDING


def test_alibi_does_not_tell_left_from_right() -> None:
    backwards = list(range(LENGTH))[::-1]
    assert change_by(encoder_of("alibi"), backwards) < ROUNDING
    for positions in ("learned", "sinusoidal", "rotary", "relative"):
        assert change_by(encoder_of(positions), backwards) > 1e-3


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi", None])
def test_padding_is_not_looked_at(positions: PositionEncoding) -> None:
    model, lengths = encoder_of(positions), [11, 4, 7]
    together = model(TOKENS, pattern=padding(lengths))
    for row, length in enumerate(lengths):
        alone = model(TOKENS[row : row + 1, :length])
        assert off(together[row : row + 1, :length], alone) < ROUNDING


def test_the_pattern_of_a_call_narrows_that_of_the_model() -> None:
    near = encoder_of(pattern=window(3, 3))
    both = near(TOKENS, pattern=padding([11, 4, 7]))
    expected = encoder_of()(TOKENS, pattern=window(3, 3) & padding([11, 4, 7]))
    assert torch.equal(both, expected)
    assert off(encoder_of()(TOKENS), near(TOKENS)) > 1e-3


@pytest.mark.parametrize("hidden_dim", [31, 0])
@pytest.mark.parametrize("pattern", [None, window(2, 4)])
def test_matrices_by_hand(hidden_dim: int, pattern: object) -> None:
    model = encoder_of(hidden_dim=hidden_dim, pattern=pattern)
    states, matrices = model.states(TOKENS), model.matrices(TOKENS)
    assert_matrices_by_hand(
        model.layers, states, matrices, everyone() if pattern is None else pattern
    )
    assert torch.equal(states[-1], model(TOKENS))


def test_attention_alone_makes_the_whole_block() -> None:
    model = encoder_of(hidden_dim=0)
    assert not any("feed_forward" in name for name, _ in model.named_parameters())
    states = model.states(TOKENS)
    for block, before, after in zip(model.layers, states, states[1:], strict=False):
        value = block.attention.value(before).unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)
        seen = (block.matrix(before).dense() @ value).transpose(1, 2).flatten(start_dim=2)
        by_hand = block.attention_norm(before + block.attention.output(seen))
        assert off(after, by_hand) < ROUNDING


def test_embeddings_are_normed() -> None:
    model = encoder_of(num_types=2)
    with torch.no_grad():
        model.norm.weight.fill_(1.0)
        model.norm.bias.fill_(0.0)
    x = model.embed(TOKENS, types=TOKENS % 2)
    assert off(x.square().mean(dim=-1), torch.ones_like(x[..., 0])) < 1e-6
    assert torch.equal(x, model.states(TOKENS, types=TOKENS % 2)[0])


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative", None])
def test_a_state_dict_brings_all_there_is(positions: PositionEncoding) -> None:
    model = encoder_of(positions, num_types=2)
    other = TextEncoder(
        VOCABULARY,
        MODEL_DIM,
        3,
        NUM_HEADS,
        position_encoding=positions,
        hidden_dim=31,
        num_positions=13,
        num_types=2,
    )
    other.double().eval().load_state_dict(model.state_dict())
    types = TOKENS % 2
    assert torch.equal(other(TOKENS, types=types), model(TOKENS, types=types))
    assert torch.equal(copy.deepcopy(model)(TOKENS), model(TOKENS))


def test_dropout_only_in_training() -> None:
    model = encoder_of(dropout=0.3, attention_dropout=0.2)
    assert torch.equal(model(TOKENS), encoder_of()(TOKENS))
    torch.manual_seed(0)
    model.train()
    assert off(model(TOKENS), model(TOKENS)) > 1e-3


def test_it_learns() -> None:
    """Say of each token whether it stands in the first half, which takes positions."""
    torch.manual_seed(0)
    model = TextEncoder(VOCABULARY, MODEL_DIM, 2, NUM_HEADS, num_positions=LENGTH)
    judge = nn.Linear(MODEL_DIM, 1)
    target = (torch.arange(LENGTH) < LENGTH // 2).float().expand(3, -1)
    optimizer = torch.optim.Adam([*model.parameters(), *judge.parameters()], lr=1e-2)
    losses: list[float] = []
    for _ in range(30):
        optimizer.zero_grad()
        said = judge(model(TOKENS))[..., 0]
        loss = nn.functional.binary_cross_entropy_with_logits(said, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size must be at least 1, got 0"),
        ({"model_dim": 0}, "model_dim must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_heads": 3}, r"model_dim \(20\) must be a multiple of num_heads .*, got 3 heads"),
        ({"hidden_dim": -1}, "hidden_dim must be at least .*, got -1"),
        ({"num_positions": 0}, "num_positions must be at least 1, got 0"),
        ({"num_types": -1}, "num_types must be at least 0, got -1"),
        ({"activation": "tanh"}, 'activation must be one of "relu", .*, got "tanh"'),
        (
            {"position_encoding": "cosine"},
            "position_encoding must be one of \"learned\", .*, got 'cosine'",
        ),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"attention_dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
    ],
)
def test_refusals(changes: dict[str, object], message: str) -> None:
    settings = {"vocabulary_size": 7, "model_dim": 20, "num_layers": 2, "num_heads": 5}
    with pytest.raises(ValueError, match=f"^{message}$"):
        TextEncoder(**settings | changes)


def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(IndexError, match="positions must be from 0 to 12, got 13"):
        encoder_of()(tokens_of(1, 14, vocabulary=VOCABULARY))


def test_types_of_a_model_without_are_refused() -> None:
    with pytest.raises(ValueError, match="types must be None: the model has no token types"):
        encoder_of()(TOKENS, types=TOKENS % 2)


def test_lengths_must_fit_the_batch() -> None:
    with pytest.raises(ValueError, match=r"one entry per sequence, got 2 for a batch of 3"):
        encoder_of()(TOKENS, pattern=padding([3, 4]))
