"""Functions that run on each rank of a group."""

from typing import Any

import torch
from torch import Tensor, distributed

from regard.distributed.ranks import Ranks


def _everyone() -> Ranks:
    return Ranks.of(None)


def own_and_shared(failing: list[int]) -> tuple[str, list[int]]:
    """Keep a text and share a number on each rank, unless it fails."""
    ranks = _everyone()

    def work() -> tuple[str, int]:
        if ranks.rank in failing:
            raise KeyError(f"no number {ranks.rank}")
        return f"own of {ranks.rank} of {ranks.size}", 10 * ranks.rank

    return ranks.share(work)


def after_an_error() -> list[int]:
    """Return what all ranks share after one of them has failed."""
    ranks = _everyone()
    try:
        own_and_shared([1])
    except (KeyError, RuntimeError):
        return ranks.gather(lambda: ranks.rank)
    raise AssertionError("no error was raised")


def not_shared() -> int:
    """Return what can't be sent to another process, from the work that made it."""
    return _everyone().run(lambda: lambda: 7)()


def by_first(failing: bool) -> tuple[int, list[int]]:
    """Return what the first rank computed, and which ranks have computed anything."""
    ranks = _everyone()
    computed: list[int] = []

    def work() -> int:
        computed.append(ranks.rank)
        if failing:
            raise FileExistsError("book exists")
        return 3 + ranks.rank

    return ranks.first(work), computed


def same(by_rank: list[Any]) -> None:
    ranks = _everyone()
    ranks.same("book", lambda: by_rank[ranks.rank])


def dealt() -> list[str]:
    """Return what all ranks have sent to this one."""
    ranks = _everyone()
    return ranks.deal([f"{ranks.rank} to {to}" for to in range(ranks.size)])


def exchanged(ahead: int, num_rows: list[int]) -> Tensor | None:
    """Send rows that hold the number of this rank, and return those that came."""
    ranks = _everyone()
    message = torch.full((2, num_rows[ranks.rank], 3), float(ranks.rank))
    come = num_rows[(ranks.rank - ahead) % ranks.size]
    return ranks.exchange(ahead, message, come).wait()


def in_a_part(members: list[int]) -> tuple[int, list[int]]:
    """Return the number of this rank in a part of all ranks, and the numbers of all in it."""
    ranks = Ranks(distributed.new_group(members))
    return ranks.rank, ranks.gather(distributed.get_rank)
