"""What processes do together, and what becomes of the error of one of them."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from regard.distributed.ranks import RankError, Ranks, check_same
from tests import ranks as processes
from tests.distributed import on_ranks

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def three() -> Iterator[processes.Ranks]:
    with processes.ranks(3) as started:
        yield started


def test_own_and_shared_results(three: processes.Ranks) -> None:
    expected = [(f"own of {rank} of 3", [0, 10, 20]) for rank in range(3)]
    assert three(on_ranks.own_and_shared, []) == expected


def test_an_error_on_one_rank_raises_on_all(three: processes.Ranks) -> None:
    first, failed, last = three(on_ranks.own_and_shared, [1])
    assert type(failed) is KeyError
    assert failed.args == ("no number 1",)
    assert failed.__notes__ == ["This was raised on rank 1 of 3."]
    for error in (first, last):
        assert type(error) is RankError
        assert str(error) == "rank 1 has failed: KeyError: 'no number 1'"


def test_of_several_errors_each_rank_raises_its_own_or_the_first(three: processes.Ranks) -> None:
    first, *others = three(on_ranks.own_and_shared, [1, 2])
    assert str(first) == "rank 1 has failed: KeyError: 'no number 1'"
    assert [other.args for other in others] == [("no number 1",), ("no number 2",)]


def test_an_error_of_another_rank_is_caught_as_either_kind() -> None:
    assert issubclass(RankError, ValueError)
    assert issubclass(RankError, RuntimeError)


def test_ranks_go_on_after_an_error(three: processes.Ranks) -> None:
    assert three(on_ranks.after_an_error) == [[0, 1, 2]] * 3


def test_what_a_rank_keeps_is_not_sent(three: processes.Ranks) -> None:
    assert three(on_ranks.not_shared) == [7] * 3


def test_the_first_rank_works_for_all(three: processes.Ranks) -> None:
    assert three(on_ranks.by_first, False) == [(3, [0]), (3, []), (3, [])]
    failed, *others = three(on_ranks.by_first, True)
    assert type(failed) is FileExistsError
    for error in others:
        assert str(error) == "rank 0 has failed: FileExistsError: book exists"


def test_what_differs_is_named_on_all(three: processes.Ranks) -> None:
    assert three(on_ranks.same, [[4, 5], [4, 5], [4, 5]]) == [None] * 3
    for error in three(on_ranks.same, [[4, 5], [4, 5], None]):
        assert type(error) is ValueError
        assert str(error) == (
            "all ranks must have the same book, got [4, 5] on rank 0 and None on rank 2"
        )


def test_each_rank_gets_a_part_of_each(three: processes.Ranks) -> None:
    expected = [[f"{sender} to {rank}" for sender in range(3)] for rank in range(3)]
    assert three(on_ranks.dealt) == expected


@pytest.mark.parametrize("ahead", [-1, 0, 1, 2])
@pytest.mark.parametrize("num_rows", [[4, 5, 6], [4, 0, 6], [0, 0, 0]], ids=str)
def test_rows_go_ahead(three: processes.Ranks, ahead: int, num_rows: list[int]) -> None:
    for rank, rows in enumerate(three(on_ranks.exchanged, ahead, num_rows)):
        source = (rank - ahead) % 3
        if num_rows[source]:
            assert torch.equal(rows, torch.full((2, num_rows[source], 3), float(source)))
        else:
            assert rows is None


def test_a_rank_outside_of_the_group(three: processes.Ranks) -> None:
    # In a group, ranks have numbers of their own.
    first, outside, last = three(on_ranks.in_a_part, [0, 2])
    assert (first, last) == ((0, [0, 2]), (1, [0, 2]))
    assert type(outside) is ValueError
    assert str(outside) == "group must be one that this rank is in"


def test_one_process_alone() -> None:
    ranks = Ranks()
    assert (ranks.rank, ranks.size) == (0, 1)
    result = object()
    assert ranks.share(lambda: (result, 7)) == (result, [7])
    assert ranks.run(lambda: result) is ranks.first(lambda: result) is result
    assert ranks.gather(lambda: 7) == ranks.deal([7]) == [7]
    ranks.same("number", lambda: 7)

    message = torch.zeros(2, 4, 3)
    assert ranks.exchange(1, message, 4).wait() is message
    assert ranks.exchange(1, message[:, :0], 0).wait() is None


def test_an_error_of_one_process_alone_is_left_as_it_is() -> None:
    def work() -> Any:
        raise KeyError("number")

    for method in (Ranks().share, Ranks().run, Ranks().gather, Ranks().first):
        with pytest.raises(KeyError) as raised:
            method(work)
        assert not hasattr(raised.value, "__notes__")


def test_all_ranks_need_torch_distributed() -> None:
    with pytest.raises(RuntimeError, match=r"needs torch\.distributed: call init_process_group"):
        Ranks.of(None)


def test_each_name_is_compared() -> None:
    check_same([])
    check_same([{"heads": 2, "dtype": "float32"}] * 3)
    with pytest.raises(ValueError, match="the same dtype, got float32 on rank 0 and None on"):
        check_same([{"heads": 2, "dtype": "float32"}, {"heads": 2, "dtype": None}])
