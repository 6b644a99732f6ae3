"""Models of the tests: weights that matter, and what all tests compare by."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from regard.models import TextDecoder
from regard.models.stack import Stack
from regard.patterns import Pattern

Model = TypeVar("Model", bound=nn.Module)

SPREAD = 0.3


def lively(model: Model, seed: int = 0) -> Model:
    """Draw all weights anew, so large that attention is far from uniform, and no bias is zero.

    A new model looks at everything almost alike, and would forgive a pattern or a position that is
    wrong. Embeddings are larger still: otherwise biases would outvote them, and every text would
    end in the same token.
    """
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_embedding = any(part in name for part in ("embed", "wte", "wpe"))
            drawn = torch.randn(weight.shape, generator=chance, dtype=torch.float64)
            drawn *= 1.0 if is_embedding and weight.ndim == 2 else SPREAD
            is_norm = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(1 + drawn if is_norm else drawn)
    return model


def tokens_of(*shape: int, vocabulary: int, seed: int = 0) -> Tensor:
    """Draw tokens; never the first one, which BERT keeps for padding."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randint(1, vocabulary, shape, generator=chance)


def off(found: Tensor, expected: Tensor) -> float:
    """Return how far a result is off, as a share of the largest number expected."""
    assert found.shape == expected.shape, f"{list(found.shape)} is not {list(expected.shape)}"
    assert found.dtype == expected.dtype
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())


def peak(weights: Tensor) -> float:
    """Return how much larger the largest weight of a row is than an even share, on average."""
    return float((weights.max(dim=-1).values * (weights > 0).sum(dim=-1)).detach().mean())


def gradients_off(ours: nn.Module, theirs: nn.Module) -> float:
    """Return how far the gradients of our model are off those of the model it was read from.

    Every weight of ours is one of theirs, turned or cut. Gradients go the same way: put in the
    place of the weights, they are read under our names.
    """
    holder = copy.deepcopy(theirs)
    with torch.no_grad():
        for place, weight in zip(holder.parameters(), theirs.parameters(), strict=True):
            place.copy_(torch.zeros_like(weight) if weight.grad is None else weight.grad)
    expected = {
        name: weight.detach()
        for name, weight in type(ours).from_transformers(holder).named_parameters()
    }
    found = {name: weight.grad for name, weight in ours.named_parameters()}
    assert found.keys() == expected.keys()
    largest = max(float(one.abs().max()) for one in expected.values())
    # A bias of keys moves all scores of a row alike and has no gradient: shares are of the largest.
    return max(float((found[name] - expected[name]).abs().max()) for name in found) / largest


def direction(shape: torch.Size, seed: int = 7) -> Tensor:
    """Draw what results are multiplied by, to send a gradient back from all of them."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance, dtype=torch.float64)


def assert_matrices_by_hand(
    layers: Stack, states: list[Tensor], matrices: list, pattern: Pattern
) -> None:
    """Assert that each matrix is softmax(QKᵀ/√d), and that it makes what attention returns."""
    assert len(matrices) == len(layers) == len(states) - 1
    for block, state, matrix in zip(layers, states, matrices, strict=False):
        layer = block.attention
        x = block.attention_norm(state) if block.norm_first else state

        def split(projection: nn.Linear, num_heads: int, x: Tensor = x) -> Tensor:
            rows = x @ projection.weight.T
            rows = rows if projection.bias is None else rows + projection.bias
            return torch.stack(rows.chunk(num_heads, dim=-1), dim=1)

        group = layer.num_heads // layer.num_key_heads
        query = split(layer.query, layer.num_heads)
        key, value = (
            split(part, layer.num_key_heads).repeat_interleave(group, dim=1)
            for part in (layer.key, layer.value)
        )
        scores = query @ key.mT / query.shape[-1] ** 0.5
        allowed = pattern.allows(range(x.shape[1]), range(x.shape[1]))
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
        dense = matrix.dense()
        assert off(dense, weights) < 1e-12
        assert off(dense.sum(dim=-1), torch.ones_like(dense[..., 0])) < 1e-12
        joined = torch.cat(list((dense @ value).unbind(dim=1)), dim=-1)
        seen = joined @ layer.output.weight.T
        seen = seen if layer.output.bias is None else seen + layer.output.bias
        assert off(layer(x, pattern=pattern), seen) < 1e-12


def assert_drops(model: nn.Module, *, share: float, attention_share: float) -> None:
    """Assert that a model of three layers is training, and drops what it should."""
    assert model.training
    shares = [part.p for part in model.modules() if isinstance(part, nn.Dropout)]
    assert shares == [share] * 4
    assert [block.attention.dropout for block in model.layers] == [attention_share] * 3


def assert_writes_alike(theirs: PreTrainedModel, tokens: Tensor, *, cached: bool) -> None:
    """Assert that a model of transformers goes on as the same model does here, for 30 tokens."""
    with torch.no_grad():
        # Otherwise it would repeat one token over and over.
        read = theirs.get_input_embeddings().weight
        theirs.get_output_embeddings().weight.copy_(read.roll(1, dims=0))
    expected = theirs.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=30, do_sample=False
    )
    assert expected.shape == (tokens.shape[0], tokens.shape[1] + 30)
    assert len(expected[:, tokens.shape[1] :].unique()) > 9
    ours = TextDecoder.from_transformers(theirs)
    assert torch.equal(ours.generate(tokens, 30, cached=cached), expected)
