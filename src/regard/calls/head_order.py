"""The heads of a call that several processes have."""

from collections.abc import Sequence

from regard.calls.call import AttentionCall


def head_order(call: AttentionCall, heads: Sequence[range], total: int | None) -> list[int]:
    """Return ranks in the order of their heads.

    Args:
        call: the call, for messages.
        heads: the numbers of the heads of each rank.
        total: the number of heads of all ranks.

    Raises:
        ValueError: the ranks don't have each head once.
    """
    ranks = sorted(range(len(heads)), key=lambda rank: heads[rank].start)
    found = [head for rank in ranks for head in heads[rank]]
    if total is None or found != list(range(total)):
        raise ValueError(
            f"the ranks must have each head of {call} once, and have {found} of {total}: "
            "pass group=, the tensor-parallel one"
        )
    return ranks
