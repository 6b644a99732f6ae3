import copy
import math

import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.llama.configuration_llama import LlamaConfig

from regard.positions import Rotary

BATCH, HEADS, SEQUENCE = 2, 3, 11


def points(dim: int, interleaved: bool) -> list[tuple[int, int]]:
    """List the two columns of each point."""
    if interleaved:
        return [(2 * i, 2 * i + 1) for i in range(dim // 2)]
    return [(i, i + dim // 2) for i in range(dim // 2)]


def rotated(
    x: Tensor, positions: list[list[int]], dim: int, base: float, interleaved: bool
) -> Tensor:
    """Rotate one point after the other, as complex numbers."""
    result = x.to(torch.float64).clone()
    for batch in range(x.shape[0]):
        for head in range(x.shape[1]):
            for index in range(x.shape[2]):
                vector = x[batch, head, index].tolist()
                for i, (first, second) in enumerate(points(dim, interleaved)):
                    angle = positions[batch][index] / base ** (2 * i / dim)
                    turn = complex(math.cos(angle), math.sin(angle))
                    point = complex(vector[first], vector[second]) * turn
                    result[batch, head, index, first] = point.real
                    result[batch, head, index, second] = point.imag
    return result


def tolerance(dtype: torch.dtype, furthest: int, largest: Tensor) -> float:
    """Bound the error: angles up to `furthest` are rounded a few times, then the result once."""
    angles = torch.promote_types(dtype, torch.float32)
    relative = 4 * torch.finfo(angles).eps * (furthest + 1) + torch.finfo(dtype).eps
    return relative * 2 * largest.abs().max().item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("dim", "head_dim"), [(6, 6), (6, 13), (2, 7)])
def test_the_formula(dim: int, head_dim: int, interleaved: bool, dtype: torch.dtype) -> None:
    x = torch.randn(BATCH, HEADS, SEQUENCE, head_dim).to(dtype)
    result = Rotary(dim, base=100.0, interleaved=interleaved)(x)
    expected = rotated(x, [list(range(SEQUENCE))] * BATCH, dim, 100.0, interleaved)
    assert result.dtype == dtype
    assert result.shape == x.shape
    atol = tolerance(dtype, SEQUENCE, x)
    torch.testing.assert_close(result.to(torch.float64), expected, rtol=0, atol=atol)
    assert torch.equal(result[..., dim:], x[..., dim:])


@pytest.mark.parametrize("interleaved", [False, True])
def test_positions_of_each_batch_entry(interleaved: bool) -> None:
    x = torch.randn(BATCH, HEADS, 3, 10, dtype=torch.float64)
    positions = [[5, 0, 71], [2, 2, 13]]
    rotary = Rotary(10, interleaved=interleaved)
    expected = rotated(x, positions, 10, 10_000.0, interleaved)
    result = rotary(x, torch.tensor(positions))
    torch.testing.assert_close(result, expected, rtol=0, atol=tolerance(x.dtype, 71, x))
    assert torch.equal(rotary(x, torch.tensor(positions[0]))[0], result[0])
    assert torch.equal(rotary(x, torch.tensor(positions[:1]))[0], result[0])


def test_llama() -> None:
    head_dim, length = 22, 101
    config = LlamaConfig(
        hidden_size=head_dim * HEADS,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    )
    query, key = torch.randn(2, BATCH, HEADS, length, head_dim)
    positions = torch.randint(0, 997, (BATCH, length))
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(query, positions)
    rotary = Rotary(head_dim, base=500_000.0)
    expected = modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
    atol = tolerance(torch.float32, 997, torch.stack([query, key]))
    torch.testing.assert_close(rotary(query, positions), expected[0], rtol=0, atol=atol)
    torch.testing.assert_close(rotary(key, positions), expected[1], rtol=0, atol=atol)


def test_gptj() -> None:
    head_dim, dim, length = 13, 10, 101
    query = torch.randn(BATCH, HEADS, length, head_dim)
    sin, cos = modeling_gptj.create_sinusoidal_positions(length, dim)[None].chunk(2, dim=-1)
    # GPT-J has heads after the sequence, and rotates a part that it cuts off itself.
    turned = modeling_gptj.apply_rotary_pos_emb(query[..., :dim].transpose(1, 2), sin, cos)
    expected = torch.cat([turned.transpose(1, 2), query[..., dim:]], dim=-1)
    result = Rotary(dim, interleaved=True)(query)
    atol = tolerance(torch.float32, length, query)
    torch.testing.assert_close(result, expected, rtol=0, atol=atol)


@given(
    strategies.integers(0, 100_000),
    strategies.integers(0, 100_000),
    strategies.integers(0, 100_000),
    strategies.booleans(),
)
def test_products_depend_on_the_difference_of_positions(
    first: int, second: int, shift: int, interleaved: bool
) -> None:
    rotary = Rotary(6, interleaved=interleaved)
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 7, dtype=torch.float64, generator=generator)

    def product(query_position: int, key_position: int) -> Tensor:
        turned_query = rotary(query, torch.tensor([query_position]))
        turned_key = rotary(key, torch.tensor([key_position]))
        return (turned_query * turned_key).sum()

    atol = 7 * tolerance(torch.float64, 200_000, query) * key.abs().max().item() * 2
    shifted = product(first + shift, second + shift)
    torch.testing.assert_close(shifted, product(first, second), rtol=0, atol=atol)


@given(strategies.integers(0, SEQUENCE), strategies.booleans())
def test_offset_is_a_slice_of_a_longer_sequence(offset: int, interleaved: bool) -> None:
    x = torch.randn(BATCH, HEADS, SEQUENCE, 6)
    rotary = Rotary(6, interleaved=interleaved)
    whole = rotary(x)
    rest = rotary(x[:, :, offset:], offset=offset)
    atol = tolerance(torch.float32, 0, x)
    torch.testing.assert_close(rest, whole[:, :, offset:], rtol=0, atol=atol)
    positions = torch.arange(SEQUENCE - offset)
    assert torch.equal(rotary(x[:, :, offset:], positions, offset=offset), rest)


def test_small_integers_do_not_overflow() -> None:
    x = torch.randn(BATCH, HEADS, 3, 6)
    small = torch.arange(3, dtype=torch.int8)
    assert torch.equal(Rotary(6)(x, small, offset=1000), Rotary(6)(x, offset=1000))


def test_lengths_stay() -> None:
    x = torch.randn(BATCH, HEADS, SEQUENCE, 10, dtype=torch.float64)
    torch.testing.assert_close(Rotary(10)(x).norm(dim=-1), x.norm(dim=-1))


def test_position_zero_stays() -> None:
    x = torch.randn(BATCH, HEADS, 1, 10)
    assert torch.equal(Rotary(10)(x), x)


def test_gradient() -> None:
    x = torch.randn(1, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Rotary(4), x)


def test_frequencies_can_be_replaced() -> None:
    x = torch.randn(BATCH, HEADS, SEQUENCE, 6)
    half = Rotary(6).frequencies / 2
    slow = Rotary(6, frequencies=half)
    assert torch.equal(slow.frequencies, half)
    even = 2 * torch.arange(SEQUENCE)
    atol = tolerance(torch.float32, 2 * SEQUENCE, x)
    torch.testing.assert_close(slow(x, even), Rotary(6)(x), rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_cast_of_the_module_does_not_touch_the_frequencies(dtype: torch.dtype) -> None:
    rotary = Rotary(6)
    cast = copy.deepcopy(rotary).to(dtype)
    assert cast.frequencies.dtype == torch.float32
    assert torch.equal(cast.frequencies, rotary.frequencies)


def test_a_module_from_the_meta_device_has_its_frequencies() -> None:
    with torch.device("meta"):
        rotary = Rotary(6)
    assert rotary.frequencies.is_meta
    assert torch.equal(rotary.to_empty(device="cpu").frequencies, Rotary(6).frequencies)


def test_nothing_is_learned_or_saved() -> None:
    rotary = Rotary(6)
    assert not list(rotary.parameters())
    assert not rotary.state_dict()
    assert [name for name, _ in rotary.named_buffers()] == ["frequencies"]


def test_it_says_what_it_is() -> None:
    assert repr(Rotary(6, interleaved=True)) == "Rotary(dim=6, interleaved=True)"


@pytest.mark.parametrize("dim", [0, -2, 7])
def test_odd_sizes_are_refused(dim: int) -> None:
    with pytest.raises(ValueError, match=f"dim must be a positive even number, got {dim}"):
        Rotary(dim)


def test_a_base_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="base must be positive, got -1"):
        Rotary(4, base=-1.0)


def test_frequencies_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"frequencies must have .* \[3\], got \[6\]"):
        Rotary(6, frequencies=torch.ones(6))


def test_a_small_head_is_refused() -> None:
    with pytest.raises(ValueError, match="x must have a head_dim of at least dim = 6, got 5"):
        Rotary(6)(torch.zeros(2, 3, 7, 5))


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset must be at least 0, got -1"):
        Rotary(6)(torch.zeros(2, 3, 7, 6), offset=-1)


@pytest.mark.usefixtures("unchecked")
def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x must have the shape .*, got \[3, 7, 6\]"):
        Rotary(6)(torch.zeros(3, 7, 6))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", [[5], [3, 7], [2, 5], [1, 2, 7], []])
def test_positions_of_other_shapes_are_refused(shape: list[int]) -> None:
    message = r"positions must have the shape \[sequence\] = \[7\] or .* = \[2, 7\], got"
    with pytest.raises(ValueError, match=message):
        Rotary(6)(torch.zeros(2, 3, 7, 6), torch.zeros(shape, dtype=torch.int64))


@pytest.mark.usefixtures("unchecked")
def test_positions_between_positions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"positions must be integers, got torch\.float32"):
        Rotary(6)(torch.zeros(2, 3, 7, 6), torch.zeros(7))
