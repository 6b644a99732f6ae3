"""Against `torch.nn.MultiheadAttention`, with its weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from regard.layers import MultiHeadAttention
from regard.patterns import Pattern, causal, from_mask, padding
from regard.positions import Bias, from_tensor
from tests.layers.rounding import assert_close, normal, shuffle, with_gradients

BATCH, HEADS, HEAD_DIM, QUERIES, KEYS, CONTEXT_DIM = 2, 3, 5, 7, 11, 13
MODEL_DIM = HEADS * HEAD_DIM
TERMS = 2 * MODEL_DIM + HEAD_DIM + 2 * KEYS + MODEL_DIM

CONTEXTS: dict[str, int | None] = {"itself": None, "context": MODEL_DIM, "wider": CONTEXT_DIM}
"""What is looked at, and the size of its vectors."""


class Mask(NamedTuple):
    """The same restriction, as it is handed to PyTorch and to us."""

    theirs: dict[str, Tensor]
    pattern: Pattern | None = None
    bias: Bias | None = None


def chance() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def no_mask(num_queries: int, num_keys: int) -> Mask:
    return Mask({})


def causal_mask(num_queries: int, num_keys: int) -> Mask:
    ahead = torch.ones(num_queries, num_keys).triu(num_keys - num_queries + 1)
    return Mask({"attn_mask": ahead.bool()}, causal())


def boolean_mask(num_queries: int, num_keys: int) -> Mask:
    hidden = torch.rand(num_queries, num_keys, generator=chance()) < 0.5
    # PyTorch has no answer for a query that may look at nothing.
    hidden[torch.arange(num_queries), torch.arange(num_queries) % num_keys] = False
    return Mask({"attn_mask": hidden}, from_mask(~hidden))


def right_padding(num_queries: int, num_keys: int) -> Mask:
    lengths = torch.tensor([num_keys - 4, num_keys])
    hidden = torch.arange(num_keys) >= lengths[:, None]
    return Mask({"key_padding_mask": hidden}, padding(lengths))


def left_padding(num_queries: int, num_keys: int) -> Mask:
    starts = torch.tensor([0, 3])
    hidden = torch.arange(num_keys) < starts[:, None]
    return Mask({"key_padding_mask": hidden}, padding(starts=starts))


def both_paddings(num_queries: int, num_keys: int) -> Mask:
    starts, lengths = torch.tensor([1, 3]), torch.tensor([num_keys - 2, 2])
    where = torch.arange(num_keys)
    hidden = (where < starts[:, None]) | (where >= (starts + lengths)[:, None])
    return Mask({"key_padding_mask": hidden}, padding(lengths, starts=starts))


def causal_and_padding(num_queries: int, num_keys: int) -> Mask:
    ahead, hidden = causal_mask(num_queries, num_keys), right_padding(num_queries, num_keys)
    assert hidden.pattern is not None
    return Mask(ahead.theirs | hidden.theirs, causal() & hidden.pattern)


def added(num_queries: int, num_keys: int) -> Mask:
    values = normal(num_queries, num_keys, seed=5)
    bias = from_tensor(values[None, None], first_query=num_keys - num_queries)
    return Mask({"attn_mask": values}, bias=bias)


def added_for_each_head(num_queries: int, num_keys: int) -> Mask:
    values = normal(BATCH, HEADS, num_queries, num_keys, seed=5)
    bias = from_tensor(values, first_query=num_keys - num_queries)
    return Mask({"attn_mask": values.flatten(0, 1)}, bias=bias)


def added_infinity(num_queries: int, num_keys: int) -> Mask:
    values = normal(num_queries, num_keys, seed=5)
    values[:, 2] = -torch.inf
    bias = from_tensor(values[None, None], first_query=num_keys - num_queries)
    return Mask({"attn_mask": values}, bias=bias)


MASKS = [
    no_mask,
    causal_mask,
    boolean_mask,
    right_padding,
    left_padding,
    both_paddings,
    causal_and_padding,
    added,
    added_for_each_head,
    added_infinity,
]


def pair(
    context_dim: int | None,
    dtype: torch.dtype = torch.float64,
    *,
    biased: bool = True,
    **options: Any,
) -> tuple[nn.MultiheadAttention, MultiHeadAttention]:
    """Return PyTorch's layer, and ours with its weights."""
    theirs = nn.MultiheadAttention(
        MODEL_DIM, HEADS, bias=biased, kdim=context_dim, vdim=context_dim, batch_first=True
    )
    shuffle(theirs)
    ours = MultiHeadAttention(
        MODEL_DIM, HEADS, context_dim=context_dim, projection_bias=biased, **options
    )
    ours.load_state_dict(theirs.state_dict())
    return theirs.to(dtype), ours.to(dtype)


def tensors(
    context_dim: int | None, dtype: torch.dtype = torch.float64, num_queries: int = QUERIES
) -> dict[str, Tensor]:
    """Return x and, in cross-attention, a context, that want gradients."""
    found = {"x": normal(BATCH, num_queries, MODEL_DIM, dtype=dtype, seed=1)}
    if context_dim is not None:
        found["context"] = normal(BATCH, KEYS, context_dim, dtype=dtype, seed=2)
    return {name: tensor.requires_grad_() for name, tensor in found.items()}


def renamed(theirs: nn.MultiheadAttention, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Return something of each of PyTorch's weights, by our names."""
    if theirs.in_proj_weight is not None:
        joined = of(theirs.in_proj_weight)
        weights = [joined[i * MODEL_DIM : (i + 1) * MODEL_DIM] for i in range(3)]
    else:
        each = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        weights = [of(weight) for weight in each]
    parts = ("query", "key", "value")
    found = {f"{part}.weight": weight for part, weight in zip(parts, weights, strict=True)}
    found["output.weight"] = of(theirs.out_proj.weight)
    if theirs.in_proj_bias is not None:
        joined = of(theirs.in_proj_bias)
        for i, part in enumerate(parts):
            found[f"{part}.bias"] = joined[i * MODEL_DIM : (i + 1) * MODEL_DIM]
        found["output.bias"] = of(theirs.out_proj.bias)
    return found


def their_results(
    theirs: nn.MultiheadAttention, inputs: dict[str, Tensor], masks: dict[str, Tensor]
) -> dict[str, Tensor]:
    x = inputs["x"]
    context = inputs.get("context", x)
    output, _ = theirs(x, context, context, need_weights=False, **masks)
    # Gradients come to the joined weights, and are cut up afterwards.
    named = with_gradients(output, inputs | dict(theirs.named_parameters()))
    grads = {id(weight): named.pop(name) for name, weight in theirs.named_parameters()}
    return named | renamed(theirs, lambda weight: grads[id(weight)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("looked_at", CONTEXTS)
@pytest.mark.parametrize("mask_of", MASKS)
def test_outputs_and_gradients(
    mask_of: Callable[[int, int], Mask], looked_at: str, dtype: torch.dtype
) -> None:
    context_dim = CONTEXTS[looked_at]
    inputs = tensors(context_dim, dtype)
    mask = mask_of(QUERIES, QUERIES if context_dim is None else KEYS)
    theirs, ours = pair(context_dim, dtype, bias=mask.bias)
    masks = {k: v.to(dtype) if v.is_floating_point() else v for k, v in mask.theirs.items()}
    expected = their_results(theirs, inputs, masks)
    output = ours(*inputs.values(), pattern=mask.pattern)
    found = with_gradients(output, inputs | dict(ours.named_parameters()))
    assert output.dtype == dtype
    assert_close(found, expected, terms=TERMS)


@pytest.mark.parametrize("looked_at", CONTEXTS)
@pytest.mark.parametrize("mask_of", MASKS)
def test_weights(mask_of: Callable[[int, int], Mask], looked_at: str) -> None:
    context_dim = CONTEXTS[looked_at]
    inputs = tensors(context_dim)
    mask = mask_of(QUERIES, QUERIES if context_dim is None else KEYS)
    theirs, ours = pair(context_dim, bias=mask.bias)
    x, context = inputs["x"], inputs.get("context", inputs["x"])
    _, expected = theirs(x, context, context, average_attn_weights=False, **mask.theirs)
    found = ours.matrix(*inputs.values(), pattern=mask.pattern).dense()
    assert_close({"weights": found}, {"weights": expected}, terms=TERMS)


@pytest.mark.parametrize("looked_at", CONTEXTS)
def test_without_biases(looked_at: str) -> None:
    inputs = tensors(CONTEXTS[looked_at])
    theirs, ours = pair(CONTEXTS[looked_at], biased=False)
    expected = their_results(theirs, inputs, {})
    output = ours(*inputs.values())
    found = with_gradients(output, inputs | dict(ours.named_parameters()))
    assert_close(found, expected, terms=TERMS)


@pytest.mark.parametrize("mask_of", [no_mask, boolean_mask, added, right_padding])
def test_more_queries_than_keys(mask_of: Callable[[int, int], Mask]) -> None:
    inputs = tensors(CONTEXT_DIM, num_queries=17)
    mask = mask_of(17, KEYS)
    theirs, ours = pair(CONTEXT_DIM, bias=mask.bias)
    expected = their_results(theirs, inputs, mask.theirs)
    output = ours(*inputs.values(), pattern=mask.pattern)
    found = with_gradients(output, inputs | dict(ours.named_parameters()))
    assert_close(found, expected, terms=TERMS + 17)


# State dicts


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("looked_at", CONTEXTS)
def test_there_and_back(looked_at: str, biased: bool) -> None:
    theirs, ours = pair(CONTEXTS[looked_at], biased=biased)
    back = ours.torch_state_dict()
    assert back.keys() == theirs.state_dict().keys()
    for name, weight in theirs.state_dict().items():
        assert torch.equal(back[name], weight), name
    for name, weight in renamed(theirs, lambda weight: weight.detach()).items():
        assert torch.equal(ours.state_dict()[name], weight), name

    shuffle(ours, seed=7)
    theirs.load_state_dict(ours.torch_state_dict())
    again = MultiHeadAttention(
        MODEL_DIM, HEADS, context_dim=CONTEXTS[looked_at], projection_bias=biased
    ).double()
    again.load_state_dict(theirs.state_dict())
    for name, weight in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def test_our_own_names_load_as_ever() -> None:
    _, ours = pair(CONTEXT_DIM)
    again = MultiHeadAttention(MODEL_DIM, HEADS, context_dim=CONTEXT_DIM).double()
    again.load_state_dict(ours.state_dict())
    for name, weight in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def test_loading_leaves_the_state_dict_as_it_was() -> None:
    theirs, ours = pair(None)
    state = theirs.state_dict()
    before = {name: weight.clone() for name, weight in state.items()}
    ours.load_state_dict(state)
    shuffle(ours, seed=9)
    assert state.keys() == before.keys()
    for name, weight in before.items():
        assert torch.equal(state[name], weight), name


def test_what_is_given_back_is_a_copy() -> None:
    for context_dim in (None, CONTEXT_DIM):
        _, ours = pair(context_dim)
        before = {name: weight.clone() for name, weight in ours.state_dict().items()}
        for weight in ours.torch_state_dict().values():
            weight.zero_()
        for name, weight in ours.state_dict().items():
            assert torch.equal(weight, before[name]), name


class EncoderLayer(nn.Module):
    """What `nn.TransformerEncoderLayer` is made of, under its names, with our attention."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(MODEL_DIM, HEADS)
        self.linear1 = nn.Linear(MODEL_DIM, hidden_dim)
        self.linear2 = nn.Linear(hidden_dim, MODEL_DIM)
        self.norm1, self.norm2 = nn.LayerNorm(MODEL_DIM), nn.LayerNorm(MODEL_DIM)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.self_attn(x))
        return self.norm2(x + self.linear2(self.linear1(x).relu()))


def test_names_inside_of_larger_modules() -> None:
    one = nn.TransformerEncoderLayer(MODEL_DIM, HEADS, 23, dropout=0.0, batch_first=True)
    theirs = nn.Sequential(one, nn.TransformerEncoderLayer(MODEL_DIM, HEADS, 23, 0.0)).double()
    theirs[1].self_attn.batch_first = True
    shuffle(theirs)
    ours = nn.Sequential(EncoderLayer(23), EncoderLayer(23)).double()
    ours.load_state_dict(theirs.state_dict())
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    with torch.no_grad():
        found, expected = ours(x), theirs.train()(x)
    # Two layers, each with a hidden layer and two norms on the way.
    terms = 2 * (TERMS + 2 * 23 + 4 * MODEL_DIM)
    assert_close({"output": found}, {"output": expected}, terms=terms)


def test_unknown_weights_are_refused() -> None:
    theirs = nn.MultiheadAttention(MODEL_DIM, HEADS, add_bias_kv=True)
    ours = MultiHeadAttention(MODEL_DIM, HEADS)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\).*\"bias_k\", \"bias_v\""):
        ours.load_state_dict(theirs.state_dict())
    missing, unexpected = ours.load_state_dict(theirs.state_dict(), strict=False)
    assert (missing, sorted(unexpected)) == ([], ["bias_k", "bias_v"])
    parent = nn.ModuleDict({"self_attn": MultiHeadAttention(MODEL_DIM, HEADS)})
    state = {f"self_attn.{name}": weight for name, weight in theirs.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\).*\"self_attn.bias_k\""):
        parent.load_state_dict(state)


def test_missing_weights_are_refused() -> None:
    theirs = nn.MultiheadAttention(MODEL_DIM, HEADS, bias=False)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\).*\"query.bias\".*\"output.bias\""):
        MultiHeadAttention(MODEL_DIM, HEADS).load_state_dict(theirs.state_dict())
    state = nn.MultiheadAttention(MODEL_DIM, HEADS).state_dict()
    del state["in_proj_weight"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\).*\"key.weight\""):
        MultiHeadAttention(MODEL_DIM, HEADS).load_state_dict(state)


def test_biases_that_have_no_place_are_refused() -> None:
    theirs = nn.MultiheadAttention(MODEL_DIM, HEADS)
    shuffle(theirs)
    ours = MultiHeadAttention(MODEL_DIM, HEADS, projection_bias=False)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\).*\"query.bias\""):
        ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize(
    ("size", "options"),
    [(2 * MODEL_DIM, {}), (MODEL_DIM, {"context_dim": 13}), (MODEL_DIM, {"num_key_heads": 1})],
)
def test_weights_of_other_sizes_are_refused(size: int, options: dict[str, int]) -> None:
    theirs = nn.MultiheadAttention(size, HEADS)
    with pytest.raises(RuntimeError, match=r"size mismatch for key.weight"):
        MultiHeadAttention(MODEL_DIM, HEADS, **options).load_state_dict(theirs.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_key_heads": 1},
            r"no grouped queries: num_key_heads must be num_heads \(3\), got 1$",
        ),
        (
            {"key_dim": 7, "value_dim": HEAD_DIM},
            r"sum to model_dim: those of the query heads must sum to 15, got 21$",
        ),
        (
            {"value_dim": 2},
            r"sum to model_dim: those of the value heads must sum to 15, got 6$",
        ),
        (
            {"output_bias": False},
            r"all biases or none: output_bias must be projection_bias \(True\), "
            r"got False$",
        ),
        (
            {"projection_bias": False, "output_bias": True},
            r"output_bias must be projection_bias \(False\), got True$",
        ),
    ],
)
def test_what_pytorch_cannot_have(options: dict[str, Any], message: str) -> None:
    layer = MultiHeadAttention(MODEL_DIM, HEADS, **options)
    with pytest.raises(ValueError, match=message):
        layer.torch_state_dict()
