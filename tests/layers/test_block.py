"""Against `torch.nn.TransformerEncoderLayer`, with its weights."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.layers import FeedForward, KeyValueCache, MultiHeadAttention, TransformerBlock
from regard.patterns import Pattern, causal, padding, window
from regard.positions import Rotary, alibi
from tests.layers.laws import assert_copies, assert_learns, in_every_way
from tests.layers.rounding import assert_close, normal, shuffle, with_gradients

BATCH, LENGTH, HEADS, MODEL_DIM, HIDDEN_DIM = 2, 7, 3, 15, 23
# Attention, the hidden layer, two norms with a mean and a variance each, and the batch.
TERMS = 4 * MODEL_DIM + 2 * LENGTH + 2 * HIDDEN_DIM + 4 * MODEL_DIM + BATCH * LENGTH

THEIR_NAMES = {
    "attention": "self_attn",
    "feed_forward.up": "linear1",
    "feed_forward.down": "linear2",
    "attention_norm": "norm1",
    "feed_forward_norm": "norm2",
}


def block_of(
    *,
    norm_first: bool = True,
    activation: str = "relu",
    bias: bool = True,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float64,
    norm: Callable[..., nn.Module] = nn.LayerNorm,
    **options: Any,
) -> TransformerBlock:
    block = TransformerBlock(
        MultiHeadAttention(MODEL_DIM, HEADS, projection_bias=bias, **options),
        FeedForward(MODEL_DIM, HIDDEN_DIM, activation=activation, bias=bias),
        norm(MODEL_DIM),
        norm(MODEL_DIM),
        norm_first=norm_first,
        dropout=dropout,
    )
    shuffle(block)
    return block.to(dtype)


def encoder_layer(
    *, norm_first: bool, activation: str, bias: bool = True
) -> nn.TransformerEncoderLayer:
    """Return PyTorch's layer, in training: otherwise it takes a fused path without gradients."""
    theirs = nn.TransformerEncoderLayer(
        MODEL_DIM,
        HEADS,
        HIDDEN_DIM,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=norm_first,
        bias=bias,
    )
    shuffle(theirs, seed=4)
    return theirs.double().train()


def load(block: TransformerBlock, theirs: nn.TransformerEncoderLayer) -> None:
    state = {}
    for ours, name in THEIR_NAMES.items():
        part = theirs.get_submodule(name).state_dict()
        state |= {f"{ours}.{key}": weight for key, weight in part.items()}
    block.load_state_dict(state)


def our_gradients(
    theirs: nn.TransformerEncoderLayer, grads: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return PyTorch's gradients by our names."""
    found = {name: grads[name] for name in ("output", "x")}
    for ours, name in THEIR_NAMES.items():
        if name == "self_attn":
            continue
        for kind, _ in theirs.get_submodule(name).named_parameters():
            found[f"{ours}.{kind}"] = grads[f"{name}.{kind}"]
    for kind in ("weight", "bias"):
        if f"self_attn.in_proj_{kind}" not in grads:
            continue
        for i, part in enumerate(("query", "key", "value")):
            rows = slice(i * MODEL_DIM, (i + 1) * MODEL_DIM)
            found[f"attention.{part}.{kind}"] = grads[f"self_attn.in_proj_{kind}"][rows]
        found[f"attention.output.{kind}"] = grads[f"self_attn.out_proj.{kind}"]
    return found


MASKS: dict[str, tuple[dict[str, Tensor], Pattern | None]] = {
    "none": ({}, None),
    "causal": ({"src_mask": torch.ones(LENGTH, LENGTH).triu(1).bool()}, causal()),
    "padding": (
        {"src_key_padding_mask": torch.arange(LENGTH) >= torch.tensor([[3], [LENGTH]])},
        padding([3, LENGTH]),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_outputs_and_gradients(
    norm_first: bool, activation: str, mask: str, dtype: torch.dtype
) -> None:
    theirs = encoder_layer(norm_first=norm_first, activation=activation)
    block = block_of(norm_first=norm_first, activation=activation)
    load(block, theirs)
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1).requires_grad_()
    masks, pattern = MASKS[mask]
    grads = with_gradients(theirs(x, **masks), {"x": x} | dict(theirs.named_parameters()))
    expected = our_gradients(theirs, grads)

    block, x = block.to(dtype), x.detach().to(dtype).requires_grad_()
    output = block(x, pattern=pattern)
    assert output.dtype == dtype
    found = with_gradients(output, {"x": x} | dict(block.named_parameters()))
    assert_close(found, expected, terms=TERMS)


@pytest.mark.parametrize("norm_first", [True, False])
def test_without_biases(norm_first: bool) -> None:
    theirs = encoder_layer(norm_first=norm_first, activation="relu", bias=False)
    block = block_of(norm_first=norm_first, bias=False, norm=_norm_without_bias)
    load(block, theirs)
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1)
    assert_close({"output": block(x)}, {"output": theirs(x)}, terms=TERMS)


def _norm_without_bias(dim: int) -> nn.LayerNorm:
    return nn.LayerNorm(dim, bias=False)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_matrix_is_that_of_its_attention(norm_first: bool) -> None:
    block = block_of(norm_first=norm_first, pattern=causal(), bias=True)
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1)
    looking = x
    if norm_first:
        centred = x - x.mean(dim=-1, keepdim=True)
        looking = centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5)
        looking = looking * block.attention_norm.weight + block.attention_norm.bias
    query, key = (
        part(looking).unflatten(-1, (HEADS, 5)).transpose(1, 2)
        for part in (block.attention.query, block.attention.key)
    )
    scores = query @ key.mT / math.sqrt(5)
    ahead = torch.ones(LENGTH, LENGTH).triu(1).bool()
    for pattern, hidden in [
        (None, ahead),
        (padding([3, 7]), ahead | (torch.arange(7) >= torch.tensor([3, 7])[:, None, None, None])),
    ]:
        expected = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
        found = block.matrix(x, pattern=pattern).dense()
        assert_close({"weights": found}, {"weights": expected}, terms=TERMS)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_attention_alone(norm: Callable[[int], nn.Module], norm_first: bool) -> None:
    block = TransformerBlock(
        MultiHeadAttention(MODEL_DIM, HEADS), None, norm(MODEL_DIM), None, norm_first=norm_first
    ).double()
    shuffle(block)
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1)
    attention, scaled = block.attention, block.attention_norm
    expected = x + attention(scaled(x)) if norm_first else scaled(x + attention(x))
    assert_close({"output": block(x)}, {"output": expected}, terms=TERMS)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"rotary": Rotary(4), "num_key_heads": 1},
        {"bias": True},
        {"pattern": causal() & window(before=2)},
    ],
    ids=["rotary and grouped", "plain", "window"],
)
@pytest.mark.parametrize("sizes", [[7], [1] * 7, [3, 1, 0, 2, 1]], ids=str)
def test_pieces_are_the_whole(sizes: list[int], options: dict[str, Any], norm_first: bool) -> None:
    block = block_of(norm_first=norm_first, **({"pattern": causal()} | options))
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1)
    whole, weights, cache = block(x), block.matrix(x).dense(), KeyValueCache()
    pieces, first = [], 0
    for piece in x.split(sizes, dim=1):
        stop = first + piece.shape[1]
        found = block.matrix(piece, cache=cache).dense()
        expected = weights[:, :, first:stop, :stop]
        assert_close({"weights": found}, {"weights": expected}, terms=TERMS)
        pieces.append(block(piece, cache=cache))
        first = stop
    assert_close({"output": torch.cat(pieces, dim=1)}, {"output": whole}, terms=TERMS)


def test_dropout_drops_what_is_added() -> None:
    # Attention and the feed-forward part add ones where there were zeros.
    block = block_of(dropout=0.25)
    with torch.no_grad():
        for linear in (block.attention.output, block.feed_forward.down):
            linear.weight.zero_()
            linear.bias.fill_(1.0)
    x = torch.zeros(11, 61, MODEL_DIM, dtype=torch.float64)
    assert torch.equal(block.eval()(x), x + 2)
    torch.manual_seed(0)
    found = block.train()(x).detach()
    # Each of the two is there, enlarged, with a chance of 3/4.
    counts = found * 0.75
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-12)
    for times, chance in enumerate([1 / 16, 6 / 16, 9 / 16]):
        share = (counts.round() == times).double().mean().item()
        assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / found.numel())


@pytest.mark.parametrize("dropout", [1.0, -0.5])
def test_shares_that_are_none(dropout: float) -> None:
    with pytest.raises(
        ValueError, match=rf"^dropout must be at least 0 and below 1, got {dropout}$"
    ):
        block_of(dropout=dropout)


def test_a_part_and_its_norm_come_together() -> None:
    attention, norm = MultiHeadAttention(MODEL_DIM, HEADS), nn.LayerNorm(MODEL_DIM)
    message = r"^feed_forward and feed_forward_norm must both be given, or both None$"
    with pytest.raises(ValueError, match=message):
        TransformerBlock(attention, FeedForward(MODEL_DIM, HIDDEN_DIM), norm, None)
    with pytest.raises(ValueError, match=message):
        TransformerBlock(attention, None, norm, norm)


def test_repr() -> None:
    printed = repr(block_of(pattern=causal(), bias=True, scale=0.5))
    for part in ("MultiHeadAttention(", "pattern=causal(), scale=0.5", "FeedForward(", "LayerNorm"):
        assert part in printed
    norm = nn.LayerNorm(MODEL_DIM)
    alone = TransformerBlock(MultiHeadAttention(MODEL_DIM, HEADS), None, norm, None)
    assert "FeedForward" not in repr(alone)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm_first", [True, False])
def test_half_precision(norm_first: bool, dtype: torch.dtype) -> None:
    block = block_of(norm_first=norm_first, dtype=dtype, pattern=causal(), rotary=Rotary(4))
    x = normal(BATCH, LENGTH, MODEL_DIM, dtype=dtype, seed=1)
    found = block(x)
    assert found.dtype == dtype
    assert_close({"output": found}, {"output": block.double()(x.double())}, terms=TERMS)


@in_every_way
def test_copies(copied: Callable[[TransformerBlock], TransformerBlock]) -> None:
    block, x = block_of(pattern=causal()), normal(BATCH, LENGTH, MODEL_DIM)
    assert_copies(block, copied, lambda block: block(x))


@pytest.mark.parametrize("norm_first", [True, False])
def test_training_lowers_the_loss(norm_first: bool) -> None:
    torch.manual_seed(0)
    block = TransformerBlock(
        MultiHeadAttention(MODEL_DIM, HEADS, bias=alibi(HEADS)),
        FeedForward(MODEL_DIM, HIDDEN_DIM, activation="swiglu"),
        nn.LayerNorm(MODEL_DIM),
        nn.LayerNorm(MODEL_DIM),
        norm_first=norm_first,
    )
    x = normal(BATCH, LENGTH, MODEL_DIM, seed=1, dtype=torch.float32)
    assert_learns(block, lambda: block(x), x.flip(1), rate=0.05, share=1)
