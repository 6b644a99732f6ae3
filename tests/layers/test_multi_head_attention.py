"""Against the definition written out, and against itself with the same weights arranged otherwise.

`test_torch_weights.py` holds it against PyTorch's layer.
"""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.layers import KeyValueCache, MultiHeadAttention
from regard.patterns import Pattern, causal, padding, window
from regard.positions import Bias, Relative, Rotary, alibi, softcap
from regard.positions import given as given_bias
from tests.layers.laws import assert_copies, assert_learns, in_every_way
from tests.layers.rounding import assert_close, normal, shuffle, with_gradients

BATCH, QUERIES, KEYS, MODEL_DIM, CONTEXT_DIM = 2, 7, 11, 15, 13
TERMS = 2 * MODEL_DIM + 7 + 2 * KEYS + 6 * 7

Allowed = Callable[[int, int, int], bool]
"""Whether, in sequence b, the query at position i may look at the key at position j."""

Adjust = Callable[[Tensor, int, int, int], Tensor]
"""What becomes of the score of head h between the positions i and j."""


def written_out(
    layer: MultiHeadAttention,
    x: Tensor,
    context: Tensor | None = None,
    *,
    scale: float | None = None,
    rotary: Rotary | None = None,
    allowed: Allowed = lambda b, i, j: True,
    adjust: Adjust = lambda score, h, i, j: score,
) -> Tensor:
    """Compute attention from its definition: one sequence, one head, one query at a time.

    Of the layer, only the weights are used, and how many heads there are.
    """
    context = x if context is None else context
    heads, key_heads = layer.num_heads, layer.num_key_heads
    key_dim = layer.query.out_features // heads
    value_dim = layer.value.out_features // key_heads
    scale = 1 / math.sqrt(key_dim) if scale is None else scale
    first = context.shape[1] - x.shape[1]

    def part(linear: nn.Linear, vectors: Tensor, head: int, dim: int) -> Tensor:
        rows = slice(head * dim, (head + 1) * dim)
        result = vectors @ linear.weight[rows].T
        return result if linear.bias is None else result + linear.bias[rows]

    sequences = []
    for b in range(len(x)):
        seen = []
        for h in range(heads):
            group = h // (heads // key_heads)
            q = part(layer.query, x[b], h, key_dim)
            k = part(layer.key, context[b], group, key_dim)
            v = part(layer.value, context[b], group, value_dim)
            if rotary is not None:
                q, k = rotary(q[None, None])[0, 0], rotary(k[None, None])[0, 0]
            rows = []
            for i in range(len(q)):
                looked_at = [j for j in range(len(k)) if allowed(b, first + i, j)]
                if not looked_at:
                    rows.append(v.new_zeros(value_dim))
                    continue
                scores = torch.stack(
                    [adjust(scale * (q[i] * k[j]).sum(), h, first + i, j) for j in looked_at]
                )
                exponentials = torch.exp(scores)
                total = exponentials.sum()
                pairs = zip(exponentials, looked_at, strict=True)
                rows.append(sum(e / total * v[j] for e, j in pairs))
            seen.append(torch.stack(rows))
        sequences.append(torch.cat(seen, dim=1) @ layer.output.weight.T)
    result = torch.stack(sequences)
    return result if layer.output.bias is None else result + layer.output.bias


def layer_of(
    num_heads: int = 3, *, dtype: torch.dtype = torch.float64, **options: Any
) -> MultiHeadAttention:
    layer = MultiHeadAttention(MODEL_DIM, num_heads, **options)
    shuffle(layer)
    return layer.to(dtype)


def check(
    layer: MultiHeadAttention,
    x: Tensor,
    context: Tensor | None = None,
    *,
    pattern: Pattern | None = None,
    **meaning: Any,
) -> None:
    """Assert that a layer in float64, and in float32, gives what the definition does."""
    given = {"x": x.requires_grad_()}
    if context is not None:
        given["context"] = context.requires_grad_()
    inputs = given | dict(layer.named_parameters())
    expected = with_gradients(written_out(layer, *given.values(), **meaning), inputs)
    found = with_gradients(layer(*given.values(), pattern=pattern), inputs)
    assert_close(found, expected, terms=TERMS)

    layer = copy.deepcopy(layer).to(torch.float32)
    given = {name: tensor.detach().float().requires_grad_() for name, tensor in given.items()}
    inputs = given | dict(layer.named_parameters())
    found = with_gradients(layer(*given.values(), pattern=pattern), inputs)
    assert found["output"].dtype == torch.float32
    assert_close(found, expected, terms=TERMS)


# What it computes


@pytest.mark.parametrize("projection_bias", [True, False])
@pytest.mark.parametrize("output_bias", [True, False, None])
@pytest.mark.parametrize(
    "sizes",
    [{}, {"key_dim": 2}, {"value_dim": 7}, {"key_dim": 7, "value_dim": 2}, {"num_key_heads": 1}],
    ids=str,
)
def test_sizes_of_their_own(
    sizes: dict[str, int], projection_bias: bool, output_bias: bool | None
) -> None:
    layer = layer_of(projection_bias=projection_bias, output_bias=output_bias, **sizes)
    assert (layer.query.bias is not None) == projection_bias
    expected = projection_bias if output_bias is None else output_bias
    assert (layer.output.bias is not None) == expected
    check(layer, normal(BATCH, QUERIES, MODEL_DIM, seed=1))


@pytest.mark.parametrize("num_key_heads", [1, 2, 3, 6])
def test_a_context_and_grouped_heads(num_key_heads: int) -> None:
    layer = layer_of(
        6, num_key_heads=num_key_heads, key_dim=5, value_dim=2, context_dim=CONTEXT_DIM
    )
    x, context = (
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        normal(BATCH, KEYS, CONTEXT_DIM, seed=2),
    )
    check(layer, x, context)
    check(layer, x, context, pattern=causal(), allowed=lambda b, i, j: j <= i)


def test_heads_that_do_not_divide_the_model() -> None:
    check(layer_of(4, key_dim=3), normal(BATCH, QUERIES, MODEL_DIM, seed=1))


@pytest.mark.parametrize("num_key_heads", [1, 2, 3])
def test_grouped_heads_are_repeated_heads(num_key_heads: int) -> None:
    grouped = layer_of(6, num_key_heads=num_key_heads, key_dim=5, pattern=causal())
    repeated = layer_of(6, key_dim=5, pattern=causal())
    group = 6 // num_key_heads

    def spread(weight: Tensor) -> Tensor:
        heads = weight.unflatten(0, (num_key_heads, 5))
        return heads.repeat_interleave(group, dim=0).flatten(0, 1)

    state = grouped.state_dict()
    for part in ("key", "value"):
        for kind in ("weight", "bias"):
            state[f"{part}.{kind}"] = spread(state[f"{part}.{kind}"])
    repeated.load_state_dict(state)

    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1).requires_grad_()
    found = with_gradients(grouped(x), {"x": x} | dict(grouped.named_parameters()))
    expected = with_gradients(repeated(x), {"x": x} | dict(repeated.named_parameters()))
    for part in ("key", "value"):
        for kind in ("weight", "bias"):
            name = f"{part}.{kind}"
            # What is used several times gets the sum of the gradients.
            expected[name] = (
                expected[name].unflatten(0, (num_key_heads, group, 5)).sum(1).flatten(0, 1)
            )
    assert_close(found, expected, terms=TERMS)
    found, expected = (one.matrix(x).dense() for one in (grouped, repeated))
    assert_close({"weights": found}, {"weights": expected}, terms=TERMS)


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0, -0.7, 0.0])
def test_scale(scale: float) -> None:
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    check(layer_of(scale=scale), x, scale=scale)
    layer = layer_of(scale=scale, pattern=causal())
    check(layer, x, scale=scale, allowed=lambda b, i, j: j <= i)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("num_key_heads", [1, 3])
def test_rotary(num_key_heads: int, interleaved: bool) -> None:
    rotary = Rotary(4, base=100.0, interleaved=interleaved)
    layer = layer_of(num_key_heads=num_key_heads, rotary=rotary, pattern=causal())
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    check(layer, x, rotary=rotary, allowed=lambda b, i, j: j <= i)
    # It makes a difference.
    assert not torch.allclose(layer(x), written_out(layer, x, allowed=lambda b, i, j: j <= i))


def test_alibi() -> None:
    # The slopes of the paper for four heads.
    check(
        layer_of(4, key_dim=3, bias=alibi(4)),
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        adjust=lambda score, h, i, j: score - 2.0 ** (-2 * (h + 1)) * abs(i - j),
    )


def test_softcap() -> None:
    check(
        layer_of(bias=softcap(1.5), scale=3.0),
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        scale=3.0,
        adjust=lambda score, h, i, j: 1.5 * torch.tanh(score / 1.5),
    )


def test_relative_and_the_gradient_of_its_table() -> None:
    # With 8 buckets the distances 0 and 1 have one each, keys after the query four of their own,
    # and up to 16 those from 4√2 on share the last.
    relative = Relative(3, num_buckets=8, max_distance=16)
    layer = layer_of(bias=relative)
    assert isinstance(layer.bias, Relative)
    table = layer.bias.table
    assert "bias.table" in dict(layer.named_parameters())
    buckets = [0, 1, 2, 2, 2, 2, 3]
    check(
        layer,
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        adjust=lambda score, h, i, j: score + table[buckets[abs(i - j)] + 4 * (j > i), h],
    )


def test_a_bias_that_is_given_and_learned() -> None:
    values = nn.Parameter(normal(1, 3, QUERIES, KEYS, seed=5))
    layer = layer_of(context_dim=CONTEXT_DIM, bias=given_bias(values, first_query=KEYS - QUERIES))
    x, context = (
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        normal(BATCH, KEYS, CONTEXT_DIM, seed=2),
    )
    adjusted = written_out(
        layer, x, context, adjust=lambda score, h, i, j: score + values[0, h, i - 4, j]
    )
    inputs = {"values": values}
    expected = with_gradients(adjusted, inputs)
    assert_close(with_gradients(layer(x, context), inputs), expected, terms=TERMS)


# Who may look at whom


@pytest.mark.parametrize("always", [None, causal()], ids=str)
@pytest.mark.parametrize(
    ("now", "predicate"),
    [
        (None, lambda b, i, j: True),
        (padding([3, 7]), lambda b, i, j: j < (3, 7)[b]),
        (padding([3, 4], starts=[0, 2]), lambda b, i, j: (0, 2)[b] <= j < (3, 6)[b]),
        (window(before=2, after=1), lambda b, i, j: j in (i - 2, i - 1, i, i + 1)),
    ],
    ids=["nothing", "padding", "padding on both sides", "window"],
)
def test_what_is_allowed_always_and_now(
    always: Pattern | None, now: Pattern | None, predicate: Allowed
) -> None:
    def allowed(b: int, i: int, j: int) -> bool:
        return predicate(b, i, j) and (always is None or j <= i)

    layer, x = layer_of(pattern=always), normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    check(layer, x, pattern=now, allowed=allowed)
    weights = layer.matrix(x, pattern=now).dense()
    for b in range(BATCH):
        for i in range(QUERIES):
            for j in range(QUERIES):
                assert bool((weights[b, :, i, j] > 0).all()) == allowed(b, i, j)


def test_who_may_look_at_nothing_gets_the_bias_alone() -> None:
    # Left padding under a causal pattern: the first queries of the second sequence are padding.
    layer = layer_of(pattern=causal())
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    pattern = padding(starts=[0, 3])
    check(layer, x, pattern=pattern, allowed=lambda b, i, j: (0, 3)[b] <= j <= i)
    for i in range(3):
        assert torch.equal(layer(x, pattern=pattern)[1, i], layer.output.bias)


def test_a_sequence_alone_and_padded_on_either_side() -> None:
    layer = layer_of(pattern=causal(), rotary=Rotary(4))
    x = normal(1, 4, MODEL_DIM, seed=1)
    noise = normal(1, 3, MODEL_DIM, seed=2)
    alone = layer(x)
    right = layer(torch.cat([x, noise], dim=1), pattern=padding([4]))[:, :4]
    left = layer(torch.cat([noise, x], dim=1), pattern=padding(starts=[3]))[:, 3:]
    # Rotary knows distances only: it does not matter that all stands three places further on.
    found, expected = {"right": right, "left": left}, {"right": alone, "left": alone}
    assert_close(found, expected, terms=TERMS)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pattern": causal()},
        {"num_key_heads": 1, "key_dim": 7, "value_dim": 2, "scale": 0.3},
        {"rotary": Rotary(4), "pattern": causal() & window(before=2)},
        {"bias": alibi(3)},
        {"bias": softcap(0.5), "dropout": 0.3},
    ],
    ids=str,
)
def test_the_matrix_is_what_forward_multiplies_values_by(options: dict[str, Any]) -> None:
    layer = layer_of(**options).eval()
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    matrix = layer.matrix(x)
    assert matrix.shape == (BATCH, 3, QUERIES, QUERIES)
    value = layer.value(x).unflatten(-1, (layer.num_key_heads, -1)).transpose(1, 2)
    value = value.repeat_interleave(3 // layer.num_key_heads, dim=1)
    seen = (matrix.dense() @ value).transpose(1, 2).flatten(2)
    assert_close({"output": layer(x)}, {"output": layer.output(seen)}, terms=TERMS)


# The kernel


class Sizes(TorchDispatchMode):
    """Write down which operators run, and how large the tensors are that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.operators: set[str] = set()

    @property
    def fused(self) -> bool:
        return any("_scaled_dot_product_" in name for name in self.operators)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.add(func.name())
        results = func(*args, **(kwargs or {}))
        for result in results if isinstance(results, tuple | list) else [results]:
            if isinstance(result, Tensor):
                self.largest = max(self.largest, result.numel())
        return results


@pytest.mark.parametrize("pattern", [None, causal()], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"num_key_heads": 1}, {"value_dim": 2}, {"rotary": Rotary(4)}], ids=str
)
def test_the_matrix_is_never_written_down(options: dict[str, Any], pattern: Pattern | None) -> None:
    length = 521
    layer = layer_of(dtype=torch.float32, pattern=pattern, **options)
    x = normal(1, length, MODEL_DIM, dtype=torch.float32).requires_grad_()
    with Sizes() as sizes:
        layer(x).sum().backward()
    assert sizes.fused
    assert x.numel() <= sizes.largest < length**2 // 4


def test_nor_is_it_for_a_context() -> None:
    layer = layer_of(dtype=torch.float32, context_dim=CONTEXT_DIM)
    x = normal(1, 521, MODEL_DIM, dtype=torch.float32)
    context = normal(1, 523, CONTEXT_DIM, dtype=torch.float32)
    with Sizes() as sizes:
        layer(x, context).sum().backward()
    assert sizes.fused
    assert x.numel() <= sizes.largest < 521 * 523 // 4


def test_the_measure_sees_a_matrix_that_is_written_down() -> None:
    layer = layer_of(dtype=torch.float32)
    with Sizes() as sizes:
        layer.matrix(normal(1, 521, MODEL_DIM, dtype=torch.float32)).dense()
    assert sizes.largest >= 521**2


# Dropout


def revealing(length: int, dropout: float) -> tuple[MultiHeadAttention, Tensor]:
    """Return a layer and an input whose output is the matrix of weights, all of them equal."""
    layer = MultiHeadAttention(length, 1, projection_bias=False, dropout=dropout).double()
    with torch.no_grad():
        layer.query.weight.zero_()
        layer.value.weight.copy_(torch.eye(length))
        layer.output.weight.copy_(torch.eye(length))
    return layer, torch.eye(length, dtype=torch.float64)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    length, batch = 61, 11
    layer, x = revealing(length, share)
    weights = layer.train()(x.expand(batch, -1, -1)).detach()
    count = weights.numel()
    dropped = weights == 0
    # Five standard deviations of a share of so many.
    allowed = 5 * math.sqrt(share * (1 - share) / count)
    assert abs(dropped.double().mean().item() - share) < allowed
    kept = torch.full_like(weights, 1 / (1 - share) / length)[~dropped]
    torch.testing.assert_close(weights[~dropped], kept, rtol=1e-12, atol=0)
    assert abs(weights.sum(dim=-1).mean().item() - 1) < allowed / (1 - share)
    # Another time, others.
    again = layer(x.expand(batch, -1, -1))
    assert not torch.equal(again == 0, dropped)


def test_dropout_is_off_in_evaluation() -> None:
    with_dropout, without = layer_of(dropout=0.5), layer_of()
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    assert torch.equal(with_dropout.eval()(x), without(x))
    assert not torch.equal(with_dropout.train()(x), without(x))
    assert torch.equal(with_dropout.matrix(x).dense(), without.matrix(x).dense())


# As a module


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_dim": 0}, r"^model_dim must be at least 1, got 0$"),
        ({"num_heads": 0}, r"^num_heads must be at least 1, got 0$"),
        ({"num_heads": -3}, r"^num_heads must be at least 1, got -3$"),
        ({"num_key_heads": 0}, r"^num_key_heads must be at least 1, got 0$"),
        ({"num_key_heads": 2}, r"^num_heads \(3\) must be a multiple of num_key_heads, got 2$"),
        ({"num_key_heads": 6}, r"^num_heads \(3\) must be a multiple of num_key_heads, got 6$"),
        (
            {"model_dim": 16},
            r"^model_dim \(16\) must be a multiple of num_heads unless key_dim is given, "
            r"got 3 heads$",
        ),
        ({"key_dim": 0}, r"^key_dim must be at least 1, got 0$"),
        ({"value_dim": -1}, r"^value_dim must be at least 1, got -1$"),
        ({"context_dim": 0}, r"^context_dim must be at least 1, got 0$"),
        ({"dropout": 1.0}, r"^dropout must be at least 0 and below 1, got 1.0$"),
        ({"dropout": -0.1}, r"^dropout must be at least 0 and below 1, got -0.1$"),
        ({"dropout": math.nan}, r"^dropout must be at least 0 and below 1, got nan$"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**({"model_dim": 15, "num_heads": 3} | options))


def test_a_context_goes_with_neither_cache_nor_rotary() -> None:
    x, context = normal(BATCH, QUERIES, MODEL_DIM), normal(BATCH, KEYS, MODEL_DIM)
    message = r"^a cache is for self-attention: call the layer without context$"
    for call in (layer_of().forward, layer_of().matrix):
        with pytest.raises(ValueError, match=message):
            call(x, context, cache=KeyValueCache())
    message = r"^rotary is for self-attention: call the layer without context$"
    layer = layer_of(rotary=Rotary(4))
    for call in (layer.forward, layer.matrix):
        with pytest.raises(ValueError, match=message):
            call(x, context)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "num_heads=3"),
        ({"num_key_heads": 1}, "num_heads=3, num_key_heads=1"),
        ({"num_key_heads": 3}, "num_heads=3"),
        ({"pattern": causal() & window(before=2)}, "num_heads=3, pattern=causal() & window"),
        ({"scale": 0.5}, "num_heads=3, scale=0.5"),
        ({"scale": 0.0}, "num_heads=3, scale=0.0"),
        ({"pattern": causal(), "scale": 2.0}, "num_heads=3, pattern=causal(), scale=2.0"),
        ({"bias": alibi(3)}, "(bias): Alibi("),
        ({"bias": Relative(3)}, "(bias): Relative(num_heads=3"),
        ({"bias": softcap(5.0)}, "num_heads=3"),
        ({"bias": given_bias(torch.zeros(1, 1, 2, 2))}, "num_heads=3"),
        ({"rotary": Rotary(4)}, "(rotary): Rotary(dim=4"),
    ],
    ids=str,
)
def test_repr(options: dict[str, Any], expected: str) -> None:
    printed = repr(MultiHeadAttention(15, 3, **options))
    assert printed.startswith("MultiHeadAttention(")
    assert expected in printed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_key_heads": 1, "rotary": Rotary(4)}, {"bias": alibi(3)}, {"bias": Relative(3)}],
    ids=["plain", "grouped and rotary", "alibi", "relative"],
)
def test_every_dtype(options: dict[str, Any], dtype: torch.dtype) -> None:
    exact = layer_of(pattern=causal(), **copy.deepcopy(options))
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1, dtype=dtype)
    cast = copy.deepcopy(exact).to(dtype)
    found = cast(x)
    assert found.dtype == dtype
    # The weights are rounded too, which the definition must not be blamed for.
    exact.load_state_dict(cast.state_dict())
    assert_close({"output": found}, {"output": exact(x.double())}, terms=TERMS)


def test_what_bfloat16_cannot_hold_is_kept() -> None:
    layer = MultiHeadAttention(12, 3, bias=alibi(3), rotary=Rotary(4)).to(torch.bfloat16)
    assert isinstance(layer.bias, nn.Module)
    assert isinstance(layer.rotary, Rotary)
    assert torch.equal(layer.bias.slopes, alibi(3).slopes)
    assert torch.equal(layer.rotary.frequencies, Rotary(4).frequencies)
    assert list(layer.state_dict()) == [
        f"{part}.{kind}"
        for part in ("query", "key", "value", "output")
        for kind in ("weight", "bias")
    ]


def full_layer() -> MultiHeadAttention:
    return layer_of(
        6,
        num_key_heads=2,
        key_dim=4,
        value_dim=5,
        rotary=Rotary(4),
        bias=Relative(6),
        pattern=causal() & window(before=3),
        scale=0.4,
        dropout=0.2,
    ).eval()


@in_every_way
def test_copies(copied: Callable[[MultiHeadAttention], MultiHeadAttention]) -> None:
    layer, x = full_layer(), normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    assert_copies(layer, copied, lambda layer: layer(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_reads_weights_of_pytorch_too(
    copied: Callable[[MultiHeadAttention], MultiHeadAttention],
) -> None:
    theirs, layer = nn.MultiheadAttention(MODEL_DIM, 3), MultiHeadAttention(MODEL_DIM, 3)
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    twin = copied(layer)
    twin.load_state_dict(theirs.state_dict())
    assert torch.equal(twin.torch_state_dict()["in_proj_weight"], theirs.in_proj_weight)
    for name, weight in layer.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_state_dicts_go_there_and_back() -> None:
    layer, x = full_layer(), normal(BATCH, QUERIES, MODEL_DIM, seed=1)
    other = full_layer()
    shuffle(other, seed=5)
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


def test_a_new_layer_has_no_preference() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(60, 4)
    for part in (layer.query, layer.key, layer.value, layer.output):
        assert torch.equal(part.bias, torch.zeros(60))
        # Glorot's rule: uniform between ±√(6 / (in + out)), and no two numbers alike by design.
        limit = math.sqrt(6 / (60 + 60))
        assert 0.9 * limit < float(part.weight.detach().abs().max()) <= limit
        spread = limit / math.sqrt(3)
        assert abs(float(part.weight.detach().std()) - spread) < 0.1 * spread


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(MODEL_DIM, 3, bias=Relative(3), pattern=causal())
    x = normal(BATCH, QUERIES, MODEL_DIM, seed=1, dtype=torch.float32)
    target = x.roll(1, dims=1)
    assert_learns(layer, lambda: layer(x), target, rate=0.3, share=0.9)


def test_gradcheck() -> None:
    layer = layer_of(num_key_heads=1, rotary=Rotary(2), bias=Relative(3), pattern=causal())
    x = normal(1, 3, MODEL_DIM, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), fast_mode=True)


class Anything:
    """A bias of the user's own, as `Bias` describes it: nothing is inherited."""

    additive = True
    relative = True
    batch_size = None
    num_heads = None
    tensors: tuple[Tensor, ...] = ()

    def adjust(
        self, scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        return scores - (query - key).abs().to(scores.dtype)


def test_a_bias_of_the_users_own() -> None:
    bias: Bias = Anything()
    check(
        layer_of(bias=bias),
        normal(BATCH, QUERIES, MODEL_DIM, seed=1),
        adjust=lambda score, h, i, j: score - abs(i - j),
    )


def compare_compiled() -> None:
    """Assert that a compiled layer gives what it gave before, gradients included."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(MODEL_DIM, 3, num_key_heads=1, pattern=regard.causal())
    compiled = torch.compile(layer, fullgraph=True)
    # The second length must not be taken for the first.
    for length in (17, 17, 41):
        x = normal(BATCH, length, MODEL_DIM, dtype=torch.float32).requires_grad_()
        inputs = {"x": x} | dict(layer.named_parameters())
        eager, found = (with_gradients(module(x), inputs) for module in (layer, compiled))
        # The longest sums, those of the gradients of weights, are over all tokens.
        assert_close(found, eager, terms=TERMS + BATCH * length)


@pytest.mark.slow
def test_compiled_it_gives_the_same(run_python: Callable[..., str]) -> None:
    # In a process of its own: torch.compile can't see through the checks of shapes.
    program = "from tests.layers.test_multi_head_attention import *; compare_compiled()"
    run_python("-c", program)
