import re

import pytest
import torch

from regard.positions import Learned


def test_positions_are_looked_up() -> None:
    encoding = Learned(11, 5)
    positions = torch.tensor([[3, 0, 10], [3, 7, 1]])
    vectors = encoding(positions)
    assert vectors.shape == (2, 3, 5)
    for row in range(2):
        for column in range(3):
            assert torch.equal(vectors[row, column], encoding.table[positions[row, column]])


def test_no_positions() -> None:
    assert Learned(11, 5)(torch.arange(0)).shape == (0, 5)


def test_gradient_counts_how_often_a_position_was_read() -> None:
    encoding = Learned(5, 3)
    encoding(torch.tensor([1, 1, 4])).sum().backward()
    assert encoding.table.grad is not None
    assert encoding.table.grad[:, 0].tolist() == [0.0, 2.0, 0.0, 0.0, 1.0]


def test_the_table_is_what_is_saved() -> None:
    assert {name: list(value.shape) for name, value in Learned(11, 5).state_dict().items()} == {
        "table": [11, 5]
    }


def test_the_table_starts_small() -> None:
    torch.manual_seed(0)
    table = Learned(101, 103).table
    # The standard error of a standard deviation from m numbers is about 1 / sqrt(2 m).
    assert table.std().item() == pytest.approx(0.02, rel=5 / (2 * 101 * 103) ** 0.5)


@pytest.mark.parametrize("position", [11, 512, -1])
def test_a_position_past_the_table_says_what_to_do(position: int) -> None:
    message = re.escape(
        f"positions must be from 0 to 10, got {position}: increase num_positions, "
        "or use an encoding without a table: sinusoidal, Rotary or alibi"
    )
    with pytest.raises(IndexError, match=message):
        Learned(11, 5)(torch.tensor([0, position, 3]))


@pytest.mark.parametrize(
    ("num_positions", "dim", "message"),
    [
        (0, 5, "num_positions must be at least 1, got 0"),
        (11, -1, "dim must be at least 1, got -1"),
    ],
)
def test_empty_tables_are_refused(num_positions: int, dim: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Learned(num_positions, dim)


def test_it_says_what_it_is() -> None:
    assert repr(Learned(11, 5)) == "Learned(num_positions=11, dim=5)"
