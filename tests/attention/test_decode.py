"""Steps of a text that is being generated: prepared once a step, right in every one of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.attention.decode import DecodeStep, cached_step
from regard.patterns import Pattern, causal, columns, window
from tests.strategies import SEEDS, patterns

HEADS, DIM = 4, 8
SCALES = st.sampled_from([None, 0.3, -1.0])


def layer(batch: int, queries: int, keys: int, seed: int, key_heads: int) -> list[torch.Tensor]:
    """Return the query, key and value of one layer, float64."""
    seeded = torch.Generator().manual_seed(seed)
    shapes = [(batch, HEADS, queries, DIM), *2 * [(batch, key_heads, keys, DIM)]]
    return [torch.randn(shape, generator=seeded, dtype=torch.float64) for shape in shapes]


@given(
    st.data(),
    st.integers(1, 70),
    st.sampled_from([None, 2]),
    st.sampled_from([1, 2, 4]),
    st.tuples(SCALES, SCALES),
    st.lists(st.integers(1, 17), min_size=1, max_size=5),
    SEEDS,
)
def test_steps_on_one_pattern_are_those_of_the_reference(
    data: st.DataObject,
    keys: int,
    batch: int | None,
    key_heads: int,
    scales: tuple[float | None, float | None],
    steps: list[int],
    seed: int,
) -> None:
    pattern = data.draw(patterns(keys, batch, anywhere=True))
    for number, queries in enumerate(steps):
        keys += queries
        # Layers share the pattern, and each may have a scale of its own.
        for one, scale in enumerate(scales):
            inputs = layer(batch or 2, queries, keys, seed + 10 * number + one, key_heads)
            found = regard.attend(*inputs, pattern=pattern, scale=scale)
            expected = regard.attend(*inputs, pattern=pattern, scale=scale, backend="reference")
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def prepared(pattern: Pattern, inputs: list[torch.Tensor]) -> DecodeStep | None:
    query, key, value = inputs
    return cached_step(query, key, value, pattern, None, None)


def test_a_step_is_prepared_by_the_first_layer() -> None:
    pattern = causal() & window(before=9)
    inputs = layer(1, 1, 50, 0, HEADS)
    assert prepared(pattern, inputs) is None
    regard.attend(*inputs, pattern=pattern)
    found = prepared(pattern, inputs)
    assert found is not None
    assert (found.keys, found.mask) == (slice(40, 50), None)
    assert prepared(pattern, layer(1, 1, 51, 0, HEADS)) is None
    assert prepared(pattern, layer(2, 1, 50, 0, HEADS)) is None
    assert prepared(pattern, [tensor.float() for tensor in inputs]) is None


def test_a_step_is_known_by_where_it_stands() -> None:
    pattern = causal() & window(before=9)
    query, key, value = inputs = layer(1, 1, 50, 1, HEADS)
    regard.attend(*inputs, pattern=pattern, positions=49)
    assert cached_step(query, key, value, pattern, None, 49) is not None
    for elsewhere in (48, 0, True, torch.tensor([49])):
        assert cached_step(query, key, value, pattern, None, elsewhere) is None
    expected = regard.attend(*inputs, pattern=pattern, positions=20, backend="reference")
    torch.testing.assert_close(regard.attend(*inputs, pattern=pattern, positions=20), expected)


def test_keys_that_lie_far_apart_are_read_alone() -> None:
    pattern = causal() & columns(every=64)
    inputs = layer(1, 1, 650, 0, HEADS)
    regard.attend(*inputs, pattern=pattern)
    found = prepared(pattern, inputs)
    assert found is not None
    assert isinstance(found.keys, torch.Tensor)
    assert found.keys.tolist() == list(range(0, 650, 64))
    assert regard.plan(*inputs, pattern=pattern).density == 11 / 650


def test_a_backend_that_is_named_prepares_nothing_for_others() -> None:
    pattern = causal() & window(before=11)
    inputs = layer(1, 1, 50, 0, HEADS)
    for backend in ("fused", "blocks", "reference"):
        regard.attend(*inputs, pattern=pattern, backend=backend)
    assert prepared(pattern, inputs) is None


def test_gradients_of_a_step() -> None:
    pattern = causal() & (window(before=5) | columns(every=8))
    inputs = [tensor.requires_grad_() for tensor in layer(2, 2, 40, 0, 2)]
    regard.attend(*inputs, pattern=pattern)
    assert prepared(pattern, inputs) is not None
    found = torch.autograd.grad(regard.attend(*inputs, pattern=pattern).sum(), inputs)
    whole = regard.attend(*inputs, pattern=pattern, backend="reference")
    expected = torch.autograd.grad(whole.sum(), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("every", [1, 8, 64])
def test_what_was_prepared_in_inference_mode_serves_training(every: int) -> None:
    pattern = causal() & columns(every=every) & window(before=300 + every)
    inputs = layer(1, 1, 320, 2, HEADS)
    with torch.inference_mode():
        regard.attend(*inputs, pattern=pattern)
    inputs = [tensor.requires_grad_() for tensor in inputs]
    found = torch.autograd.grad(regard.attend(*inputs, pattern=pattern).sum(), inputs)
    whole = regard.attend(*inputs, pattern=pattern, backend="reference")
    expected = torch.autograd.grad(whole.sum(), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pattern", [causal() & window(before=4), causal() & columns(every=64)])
def test_a_step_of_tensors_without_numbers(pattern: Pattern) -> None:
    query, key, value = (tensor.to("meta") for tensor in layer(2, 1, 650, 0, HEADS))
    for _ in range(2):
        assert regard.attend(query, key, value, pattern=pattern).shape == query.shape


def test_a_step_under_a_mode_is_not_kept() -> None:
    pattern = causal() & window(before=7)
    inputs = layer(1, 1, 40, 0, HEADS)
    with FlopCounterMode(display=False):
        regard.attend(*inputs, pattern=pattern)
    assert prepared(pattern, inputs) is None
