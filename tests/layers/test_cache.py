"""A sequence that is fed in pieces is looked at as if it had come whole."""

import copy
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.layers import KeyValueCache, MultiHeadAttention
from regard.patterns import Pattern, causal, columns, padding, window
from regard.positions import Relative, Rotary, alibi, softcap
from tests.layers.rounding import assert_close, normal, shuffle, with_gradients
from tests.strategies import fewer

BATCH, HEADS, KEY_DIM, VALUE_DIM, MODEL_DIM, LONGEST = 2, 6, 4, 3, 7, 13
TERMS = 2 * MODEL_DIM + KEY_DIM + 2 * LONGEST + HEADS * VALUE_DIM + BATCH * LONGEST

LOOKING: dict[str, dict[str, Any]] = {
    "causal": {"pattern": causal()},
    "causal and window": {"pattern": causal() & window(before=3)},
    "causal and columns": {"pattern": causal() & columns(every=4)},
    "alibi": {"pattern": causal(), "bias": alibi(HEADS)},
    "relative": {"pattern": causal(), "bias": Relative(HEADS, num_buckets=8, max_distance=11)},
    "softcap": {"pattern": causal(), "bias": softcap(0.8)},
}


@cache
def layer_of(
    looking: str = "causal",
    *,
    num_key_heads: int = HEADS,
    rotary: bool = False,
    dtype: torch.dtype = torch.float64,
) -> MultiHeadAttention:
    layer = MultiHeadAttention(
        MODEL_DIM,
        HEADS,
        num_key_heads=num_key_heads,
        key_dim=KEY_DIM,
        value_dim=VALUE_DIM,
        rotary=Rotary(4, base=50.0) if rotary else None,
        **copy.deepcopy(LOOKING[looking]),
    )
    shuffle(layer)
    return layer.to(dtype)


LAYERS = st.fixed_dictionaries(
    {
        "looking": st.sampled_from(list(LOOKING)),
        "num_key_heads": st.sampled_from([1, 2, 6]),
        "rotary": st.booleans(),
    }
)
"""What a layer is made from: making it here would be drawing by chance behind hypothesis' back."""

PIECES = (
    st.lists(st.integers(0, 4), min_size=1, max_size=5)
    .filter(lambda sizes: 0 < sum(sizes) <= LONGEST)
    .flatmap(st.permutations)
)
"""How many tokens come at once, none at all among them."""


def in_pieces(
    layer: MultiHeadAttention,
    x: Tensor,
    sizes: list[int],
    seen: KeyValueCache | None = None,
    pattern: Pattern | None = None,
) -> Tensor:
    seen = KeyValueCache() if seen is None else seen
    pieces = [layer(piece, pattern=pattern, cache=seen) for piece in x.split(sizes, dim=1)]
    return torch.cat(pieces, dim=1)


def tokens(length: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return normal(BATCH, length, MODEL_DIM, dtype=dtype, seed=seed)


# Pieces and the whole


@given(LAYERS, PIECES)
def test_pieces_are_the_whole(options: dict[str, Any], sizes: list[int]) -> None:
    layer = layer_of(**options)
    x, cache = tokens(sum(sizes)), KeyValueCache()
    with torch.no_grad():
        found = in_pieces(layer, x, sizes, cache)
        assert_close({"output": found}, {"output": layer(x)}, terms=TERMS)
    assert len(cache) == sum(sizes)


@fewer
@given(LAYERS, PIECES)
def test_gradients_of_pieces_are_those_of_the_whole(
    options: dict[str, Any], sizes: list[int]
) -> None:
    layer = layer_of(**options)
    x = tokens(sum(sizes)).requires_grad_()
    inputs = {"x": x} | dict(layer.named_parameters())
    found = with_gradients(in_pieces(layer, x, sizes), inputs)
    assert_close(found, with_gradients(layer(x), inputs), terms=TERMS)


@pytest.mark.parametrize("frozen", ["query", "key", "value", "key value", "query key value"])
def test_gradients_where_some_weights_are_frozen(frozen: str) -> None:
    layer = copy.deepcopy(layer_of())
    for part in frozen.split():
        getattr(layer, part).requires_grad_(False)
    learned = {name: p for name, p in layer.named_parameters() if p.requires_grad}
    x = tokens(7)
    found = with_gradients(in_pieces(layer, x, [3, 1, 1, 2]), learned)
    assert_close(found, with_gradients(layer(x), learned), terms=TERMS)


def test_gradients_reach_back_to_what_comes_without_them() -> None:
    # The prompt needs no gradient, what follows does: it looks at the prompt nevertheless.
    layer = layer_of(rotary=True)
    x = tokens(11)
    cache = KeyValueCache()
    with torch.no_grad():
        prompt = [layer(piece, cache=cache) for piece in x[:, :5].split([4, 1], dim=1)]
    later = x[:, 5:].clone().requires_grad_()
    found = with_gradients(in_pieces(layer, later, [1, 3, 2], cache), {"x": later})
    whole = layer(torch.cat([x[:, :5], later], dim=1))
    assert_close({"output": torch.cat(prompt, 1)}, {"output": whole[:, :5]}, terms=TERMS)
    assert_close(found, with_gradients(whole[:, 5:], {"x": later}), terms=TERMS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pieces_in_other_dtypes(dtype: torch.dtype) -> None:
    layer, x = layer_of(num_key_heads=2, rotary=True, dtype=dtype), tokens(13, dtype)
    with torch.no_grad():
        found = in_pieces(layer, x, [5, 1, 1, 1, 3, 2])
        assert found.dtype == dtype
        assert_close({"output": found}, {"output": layer(x)}, terms=TERMS)


def test_many_tokens_one_by_one() -> None:
    layer = layer_of("alibi", num_key_heads=2, rotary=True)
    x = tokens(131)
    with torch.no_grad():
        found = in_pieces(layer, x, [1] * 131)
        assert_close({"output": found}, {"output": layer(x)}, terms=TERMS + 3 * 131)


@fewer
@given(LAYERS, PIECES)
def test_left_padding_in_pieces(options: dict[str, Any], sizes: list[int]) -> None:
    layer = layer_of(**options)
    pattern, x = padding(starts=[0, 3]), tokens(sum(sizes))
    with torch.no_grad():
        found = in_pieces(layer, x, sizes, pattern=pattern)
        assert_close({"output": found}, {"output": layer(x, pattern=pattern)}, terms=TERMS)


@fewer
@given(LAYERS, PIECES, st.integers(0, 4))
def test_the_matrix_of_a_piece_is_rows_of_the_whole(
    options: dict[str, Any], sizes: list[int], size: int
) -> None:
    layer = layer_of(**options)
    first, stop = sum(sizes), sum(sizes) + size
    x, cache = tokens(stop), KeyValueCache()
    with torch.no_grad():
        in_pieces(layer, x[:, :first], sizes, cache)
        found = layer.matrix(x[:, first:], cache=cache).dense()
        expected = layer.matrix(x).dense()[:, :, first:]
    assert_close({"weights": found}, {"weights": expected}, terms=TERMS)
    assert len(cache) == first


def test_looking_at_the_matrix_leaves_the_cache_as_it_is() -> None:
    layer, x = layer_of(rotary=True), tokens(9)
    cache, untouched = KeyValueCache(), KeyValueCache()
    with torch.no_grad():
        for one in (cache, untouched):
            in_pieces(layer, x[:, :5], [4, 1], one)
        for _ in range(3):
            layer.matrix(tokens(2, seed=8), cache=cache)
        assert torch.equal(layer(x[:, 5:], cache=cache), layer(x[:, 5:], cache=untouched))


@fewer
@given(LAYERS, PIECES, st.data())
def test_what_is_forgotten_leaves_no_trace(
    options: dict[str, Any], sizes: list[int], data: st.DataObject
) -> None:
    layer = layer_of(**options)
    kept = data.draw(st.integers(0, sum(sizes)))
    grad = data.draw(st.booleans())
    x = torch.cat([tokens(sum(sizes))[:, :kept], tokens(4, seed=5)], dim=1)
    cache = KeyValueCache()
    with torch.set_grad_enabled(grad):
        in_pieces(layer, tokens(sum(sizes)), sizes, cache)
        cache.truncate(kept)
        assert len(cache) == kept
        found = in_pieces(layer, x[:, kept:], [1, 3], cache)
        assert_close({"output": found}, {"output": layer(x)[:, kept:]}, terms=TERMS)
    assert len(cache) == kept + 4


# The cache by itself


def new(length: int, seed: int = 0, **kind: Any) -> tuple[Tensor, Tensor]:
    return (
        normal(2, 3, length, 5, seed=seed, **kind),
        normal(2, 3, length, 7, seed=seed + 1, **kind),
    )


@pytest.mark.parametrize("grad", [False, True])
@given(sizes=PIECES)
def test_what_is_added_comes_back_in_order(grad: bool, sizes: list[int]) -> None:
    key, value = (tensor.requires_grad_(grad) for tensor in new(sum(sizes)))
    cache = KeyValueCache()
    assert len(cache) == 0
    length = 0
    for some in zip(key.split(sizes, 2), value.split(sizes, 2), strict=True):
        length += some[0].shape[2]
        before = len(cache)
        for found in (cache.with_new(*some), cache.append(*some)):
            assert torch.equal(found[0], key[:, :, :length])
            assert torch.equal(found[1], value[:, :, :length])
        assert before + some[0].shape[2] == len(cache) == length
    assert repr(cache) == f"KeyValueCache({length} tokens)"


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", [[5], [5, 1], [5, 1, 1, 3], [1, 1, 1]], ids=str)
def test_what_was_handed_over_is_not_written_to(sizes: list[int], grad: bool) -> None:
    cache = KeyValueCache()
    handed = [new(size, seed=i) for i, size in enumerate(sizes)]
    with torch.set_grad_enabled(grad):
        for pair in handed:
            cache.append(*pair)
        for kept in (1, 0):
            cache.truncate(kept)
            cache.append(*new(sum(sizes) - kept, seed=90))
    for i, pair in enumerate(handed):
        for tensor, same in zip(pair, new(sizes[i], seed=i), strict=True):
            assert torch.equal(tensor, same)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", [[5], [5, 1], [5, 1, 1, 3], [1, 1, 1]], ids=str)
def test_what_was_handed_over_may_change_afterwards(sizes: list[int], grad: bool) -> None:
    cache = KeyValueCache()
    with torch.set_grad_enabled(grad):
        for i, size in enumerate(sizes):
            pair = new(size, seed=i)
            cache.append(*pair)
            for tensor in pair:
                tensor.zero_()
        found = cache.append(*new(0))
    for i in range(2):
        expected = torch.cat([new(size, seed=k)[i] for k, size in enumerate(sizes)], dim=2)
        assert torch.equal(found[i], expected)


@pytest.mark.parametrize("grad", [False, True])
def test_what_came_back_stays_as_it_is(grad: bool) -> None:
    cache = KeyValueCache()
    returned, copies = [], []
    with torch.set_grad_enabled(grad):
        for length in (2, 1, 1, 1, 5, 1):
            found = cache.append(*new(length, seed=length))
            returned.append(found)
            copies.append([tensor.clone() for tensor in found])
    for found, before in zip(returned, copies, strict=True):
        for tensor, same in zip(found, before, strict=True):
            assert torch.equal(tensor, same)


@torch.no_grad()
def test_room_is_made_seldom() -> None:
    cache = KeyValueCache()
    places = set()
    for i in range(200):
        key, _ = cache.append(*new(1, seed=i))
        places.add(key.data_ptr())
    # 1, 2, 4, ..., 256.
    assert len(places) <= 9


def test_wrong_shapes(unchecked: None) -> None:
    cache = KeyValueCache()
    with pytest.raises(ValueError, match=r"^value must have as many tokens as key \(4\), got 3$"):
        cache.append(new(4)[0], new(3)[1])
    assert len(cache) == 0
    cache.append(*new(4))
    key, value = new(2)
    for wrong, expected in [
        ((key[:1], value), r"^key must have the shape \[2, 3, 2, 5\] .* got \[1, 3, 2, 5\]$"),
        ((key[:, :1], value), r"^key must have the shape \[2, 3, 2, 5\] .* got \[2, 1, 2, 5\]$"),
        ((key[..., :3], value), r"^key must have the shape \[2, 3, 2, 5\] .* got \[2, 3, 2, 3\]$"),
        ((key, value[..., :5]), r"^value must have the shape \[2, 3, 2, 7\] .* got \[2, 3, 2, 5\]"),
        ((key, value[:, :2]), r"to fit the cache, got \[2, 2, 2, 7\]$"),
    ]:
        with pytest.raises(ValueError, match=expected):
            cache.append(*wrong)
    # What was refused is not half there.
    found = cache.append(key, value)
    assert len(cache) == 6
    assert torch.equal(found[0], torch.cat([new(4)[0], key], dim=2))
    assert torch.equal(found[1], torch.cat([new(4)[1], value], dim=2))


def test_wrong_shapes_are_refused_where_nothing_is_added_too(unchecked: None) -> None:
    cache = KeyValueCache()
    cache.append(*new(4))
    key, value = new(2)
    with pytest.raises(ValueError, match=r"^key must have the shape \[2, 3, 2, 5\]"):
        cache.with_new(key[:1], value[:1])
    layer, cache = layer_of(), KeyValueCache()
    layer(tokens(3), cache=cache)
    with pytest.raises(ValueError, match=r"^key must have the shape \[2, 6, 1, 4\]"):
        layer.matrix(tokens(1)[:1], cache=cache)


@pytest.mark.parametrize("grad", [False, True])
def test_another_dtype_is_refused(grad: bool, unchecked: None) -> None:
    cache = KeyValueCache()
    with torch.set_grad_enabled(grad):
        cache.append(*(tensor.requires_grad_(grad) for tensor in new(4)))
        with pytest.raises(ValueError, match=r"dtype.*float64.*float32"):
            cache.append(*(x.requires_grad_(grad) for x in new(2, dtype=torch.float32)))
    assert len(cache) == 4


@pytest.mark.parametrize("length", [-1, 5])
def test_more_than_there_is_can_not_be_kept(length: int) -> None:
    cache = KeyValueCache()
    cache.append(*new(4))
    with pytest.raises(ValueError, match=rf"^length must be from 0 to 4, got {length}$"):
        cache.truncate(length)
    assert len(cache) == 4


def test_another_batch_is_refused_by_the_layer(unchecked: None) -> None:
    layer, cache = layer_of(), KeyValueCache()
    layer(tokens(3), cache=cache)
    with pytest.raises(ValueError, match=r"^key must have the shape \[2, 6, 1, 4\]"):
        layer(tokens(1)[:1], cache=cache)
