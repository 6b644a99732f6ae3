import math

import pytest
import torch

from regard.positions import sinusoidal

# The result is computed in float64 and rounded once.
ROUNDING = torch.finfo(torch.float32).eps / 2


def wave(position: int, column: int, dim: int, base: float) -> float:
    angle = position / base ** ((column - column % 2) / dim)
    return math.cos(angle) if column % 2 else math.sin(angle)


@pytest.mark.parametrize("base", [10_000.0, 17.0])
@pytest.mark.parametrize("dim", [2, 6, 22])
def test_the_formula(dim: int, base: float) -> None:
    encoding = sinusoidal(13, dim, base=base)
    assert encoding.shape == (13, dim)
    assert encoding.dtype == torch.float32
    for position in range(13):
        for column in range(dim):
            expected = wave(position, column, dim, base)
            assert math.isclose(
                encoding[position, column].item(), expected, rel_tol=0, abs_tol=ROUNDING
            )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_positions_of_any_shape(dtype: torch.dtype) -> None:
    positions = torch.tensor([[3, 0, 11], [7, -5, 3]], dtype=dtype)
    encoding = sinusoidal(positions, 10)
    assert encoding.shape == (2, 3, 10)
    for row in range(2):
        for column in range(3):
            position = int(positions[row, column])
            expected = torch.tensor([wave(position, i, 10, 10_000.0) for i in range(10)])
            torch.testing.assert_close(encoding[row, column], expected, rtol=0, atol=ROUNDING)


def test_far_positions_are_exact() -> None:
    position = 1_000_003
    encoding = sinusoidal(torch.tensor([position]), 6)[0]
    expected = torch.tensor([wave(position, i, 6, 10_000.0) for i in range(6)])
    torch.testing.assert_close(encoding, expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype(dtype: torch.dtype) -> None:
    encoding = sinusoidal(7, 4, dtype=dtype)
    assert encoding.dtype == dtype
    assert torch.equal(encoding, sinusoidal(7, 4, dtype=torch.float64).to(dtype))


def test_no_positions() -> None:
    assert sinusoidal(0, 4).shape == (0, 4)


@pytest.mark.parametrize("dim", [0, -2, 7])
def test_odd_sizes_are_refused(dim: int) -> None:
    with pytest.raises(ValueError, match=f"dim must be a positive even number, got {dim}"):
        sinusoidal(3, dim)


def test_a_negative_number_of_positions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"positions must be at least 0, got -1"):
        sinusoidal(-1, 4)


def test_a_base_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="base must be positive, got 0"):
        sinusoidal(3, 4, base=0.0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_positions_between_positions_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"positions must be integers, got {dtype}"):
        sinusoidal(torch.ones(3, dtype=dtype), 4)
