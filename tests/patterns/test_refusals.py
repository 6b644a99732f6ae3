"""What patterns refuse, in the words that users see, who run without shape checks."""

import numpy as np
import pytest
import torch

from regard.patterns import (
    Pattern,
    causal,
    columns,
    documents,
    from_mask,
    global_at,
    layout,
    neighbours,
    padding,
    pairs,
    prefix,
    strided,
    window,
)

pytestmark = pytest.mark.usefixtures("unchecked")


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.bool)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: window(before=-1), r"window: before must be at least 0, got -1$"),
        (lambda: window(before=0, after=-3), r"window: after must be at least 0, got -3$"),
        (lambda: strided(0), r"strided: stride must be at least 1, got 0$"),
        (lambda: columns(every=-2), r"columns: every must be at least 1, got -2$"),
        (lambda: prefix(-1), r"prefix: length must be at least 0, got -1$"),
    ],
)
def test_numbers_too_small(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("value", [[0, 5], 2.5, True, "3", None, torch.tensor([3, 4])])
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda value: window(before=value), "window: before"),
        (lambda value: window(before=0, after=value), "window: after"),
        (strided, "strided: stride"),
        (columns, "columns: every"),
        (prefix, "prefix: length"),
    ],
)
def test_numbers_that_are_not_whole(build, name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be an int, got ") as error:
        build(value)
    assert repr(value) in str(error.value)


def test_columns_names_the_pattern_of_listed_keys() -> None:
    rule = r"got \[0, 5\]; for listed keys write pairs\(keys=\[…\]\)$"
    with pytest.raises(TypeError, match=rule):
        columns([0, 5])
    assert "■ · ■ ·" in pairs(keys=[0, 2]).draw(4)


def test_whole_numbers_of_other_types() -> None:
    assert columns(torch.tensor(3)) == columns(np.int64(3)) == columns(3)


@pytest.mark.parametrize("positions", [[], [-1], [3, -1], [0.5], [[0, 1]], 3])
def test_positions_of_global_at(positions: object) -> None:
    rule = "global_at: positions must be a non-empty list of integers, at least 0, got "
    with pytest.raises(ValueError, match=rule) as error:
        global_at(positions)
    assert str(error.value).endswith(f"got {positions!r}")


@pytest.mark.parametrize("side", ["queries", "keys"])
@pytest.mark.parametrize(
    "positions", [-1, [3, -1], [0.5], [[0, 1]], (0, 3), True, slice(-2, None), slice(0, 9, 2), "a"]
)
def test_positions_of_pairs(side: str, positions: object) -> None:
    rule = f"pairs: {side} must be a range, a slice or a list of positions from 0 on, got "
    with pytest.raises(ValueError, match=rule):
        pairs(**{side: positions})


@pytest.mark.parametrize(
    ("ids", "actual"),
    [
        ([], r"shape \[0\]"),
        ([0.5, 1.0], r"shape \[2\] of torch\.float32"),
        (3, r"shape \[\] of torch\.int64"),
        ([[[0, 1]]], r"shape \[1, 1, 2\] of torch\.int64"),
        (torch.zeros(2, 0, dtype=torch.long), r"shape \[2, 0\] of torch\.int64"),
    ],
)
def test_ids_of_documents(ids: object, actual: str) -> None:
    rule = r"documents: ids must be integers, \[sequence\] or \[batch, sequence\] and not empty"
    with pytest.raises(ValueError, match=f"{rule}, got {actual}"):
        documents(ids)


@pytest.mark.parametrize("lengths", [[], [1.5], [[3, 5]], 3])
def test_lengths_of_padding(lengths: object) -> None:
    rule = "padding: lengths must be a list of integers, one per sequence, got "
    with pytest.raises(ValueError, match=rule) as error:
        padding(lengths)
    assert str(error.value).endswith(f"got {lengths!r}")


def test_a_mask_as_lengths_of_padding() -> None:
    rule = r"torch.float32 and shape \[2, 7\]; for a right-padded mask .* pass mask.sum\(-1\)$"
    with pytest.raises(ValueError, match=rule):
        padding(torch.ones(2, 7))


@pytest.mark.parametrize("starts", [[], [1.5], [[3, 5]], 3])
def test_starts_of_padding(starts: object) -> None:
    rule = "padding: starts must be a list of integers, one per sequence, got "
    for build in (lambda: padding(starts=starts), lambda: padding([3, 5], starts=starts)):
        with pytest.raises(ValueError, match=rule) as error:
            build()
        assert str(error.value).endswith(f"got {starts!r}")


def test_negative_numbers_of_padding() -> None:
    with pytest.raises(ValueError, match=r"padding: lengths must be at least 0, got -2$"):
        padding([3, -2, -1])
    with pytest.raises(ValueError, match=r"padding: starts must be at least 0, got -4$"):
        padding(starts=[3, -4, -1])
    with pytest.raises(ValueError, match=r"padding: starts must be at least 0, got -1$"):
        padding([3, 2], starts=[0, -1])


def test_padding_of_nothing() -> None:
    message = r"padding: pass lengths, or starts for left padding$"
    with pytest.raises(ValueError, match=message):
        padding()


def test_lengths_and_starts_of_different_batches() -> None:
    message = r"padding: lengths and starts must have the same number of sequences, got 3 and 2$"
    with pytest.raises(ValueError, match=message):
        padding([1, 2, 3], starts=[0, 0])


@pytest.mark.parametrize(
    ("edges", "actual"),
    [
        ([], r"shape \[0\] of torch\.float32"),
        (torch.zeros(0, 2, dtype=torch.long), r"shape \[0, 2\] of torch\.int64"),
        ([(0, 1, 2)], r"shape \[1, 3\] of torch\.int64"),
        ([0, 1], r"shape \[2\] of torch\.int64"),
        ([(0.0, 1.0)], r"shape \[1, 2\] of torch\.float32"),
    ],
)
def test_edges_of_neighbours(edges: object, actual: str) -> None:
    rule = r"neighbours: edges must be at least one pair of positions, \[edges, 2\]"
    with pytest.raises(ValueError, match=f"{rule}, got {actual}$"):
        neighbours(edges)


def test_negative_edges_of_neighbours() -> None:
    with pytest.raises(ValueError, match=r"neighbours: positions must be at least 0, got -4$"):
        neighbours([(0, 1), (2, -4), (-1, 0)])


@pytest.mark.parametrize(
    ("mask", "actual"),
    [
        (torch.ones(3, 5), r"torch\.float32 of shape \[3, 5\]"),
        (torch.ones(3, 5, dtype=torch.long), r"torch\.int64 of shape \[3, 5\]"),
        (ones(5), r"torch\.bool of shape \[5\]"),
        (ones(1, 1, 3, 5), r"torch\.bool of shape \[1, 1, 3, 5\]"),
        (ones(2, 0, 5), r"torch\.bool of shape \[2, 0, 5\]"),
    ],
)
def test_masks(mask: torch.Tensor, actual: str) -> None:
    rule = (
        r"from_mask: mask must be a boolean tensor, \[queries, keys\] or \[batch, queries, keys\],"
    )
    with pytest.raises(ValueError, match=f"{rule} and not empty, got {actual}$"):
        from_mask(mask)


@pytest.mark.parametrize(
    ("pattern", "batch", "queries", "num_keys", "message"),
    [
        (
            documents([[0, 1, 1], [0, 0, 1]]), 3, range(3), 3,
            r"documents: ids must have one row per sequence, got 2 rows for a batch of 3$",
        ),
        (
            documents([0, 1, 1]), 2, range(3), 5,
            r"documents: ids must have one id per key \(5\), got 3$",
        ),
        (
            documents([0, 1, 1]), 2, range(1, 4), 3,
            r"documents: query positions must be from 0 to 2, got 1 to 3$",
        ),
        (
            documents([0, 1, 1]), 2, range(-1, 3), 3,
            r"documents: query positions must be from 0 to 2, got -1 to 2$",
        ),
        (
            padding([2, 3]), 5, range(3), 3,
            r"padding: lengths or starts must have one entry per sequence, got 2 for a batch of 5$",
        ),
        (
            padding([2, 7]), 2, range(5), 5,
            r"padding: sequences must end within the keys \(5\), got an end at 7$",
        ),
        (
            padding(starts=[2, 3]), 5, range(3), 3,
            r"padding: lengths or starts must have one entry per sequence, got 2 for a batch of 5$",
        ),
        (
            padding([4, 1], starts=[0, 5]), 2, range(5), 5,
            r"padding: sequences must end within the keys \(5\), got an end at 6$",
        ),
        (
            global_at([7, 2]), 1, range(7), 7,
            r"global_at: positions must be below the number of keys \(7\), got 7$",
        ),
        (
            neighbours([(1, 0), (7, 1)]), 1, range(7), 7,
            r"neighbours: positions must be below the number of keys \(7\), got 7$",
        ),
        (
            from_mask(ones(2, 3, 5)), 3, range(2, 5), 5,
            r"from_mask: mask must have one entry per sequence, got 2 for a batch of 3$",
        ),
        (
            from_mask(ones(3, 5)), 2, range(4, 7), 7,
            r"from_mask: mask must have one column per key \(7\), got 5$",
        ),
        (
            from_mask(ones(3, 5)), 2, range(1, 5), 5,
            r"from_mask: mask has rows for positions 2 to 4, got queries at 1 to 4$",
        ),
        (
            from_mask(ones(3, 5)), 2, range(3, 6), 5,
            r"from_mask: mask has rows for positions 2 to 4, got queries at 3 to 5$",
        ),
    ],
)  # fmt: skip
def test_check(pattern: Pattern, batch: int, queries: range, num_keys: int, message: str) -> None:
    for combined in (pattern, causal() & pattern, pattern | causal(), ~pattern):
        with pytest.raises(ValueError, match=message):
            combined.check(batch, queries, num_keys)


@pytest.mark.parametrize(
    "pattern",
    [
        documents([0, 1, 1]),
        documents([[0, 1, 1], [0, 0, 1]]),
        padding([0, 3]),
        padding([1, 2], starts=[2, 1]),
        padding(starts=[0, 7]),
        global_at([2]),
        neighbours([(0, 2), (2, 0)]),
        from_mask(ones(1, 3)),
        from_mask(ones(2, 3, 3)),
        window(before=100, after=100),
        strided(100) & ~columns(every=100) | prefix(100),
    ],
)
def test_check_lets_pass_what_fits(pattern: Pattern) -> None:
    pattern.check(2, range(2, 3), 3)
    pattern.check(2, range(0), 3)


@pytest.mark.parametrize("other", [3, True, ones(3, 3), "causal", None])
def test_patterns_combine_with_patterns_only(other: object) -> None:
    kind = type(other).__name__
    with pytest.raises(TypeError, match=rf"& needs a pattern on both sides, got {kind}$"):
        causal() & other
    with pytest.raises(TypeError, match=rf"\| needs a pattern on both sides, got {kind}$"):
        causal() | other


def test_patterns_of_different_batches_do_not_combine() -> None:
    two, three = padding([1, 2]), padding([1, 2, 3])
    message = (
        r"combined patterns must have the same batch size, "
        r"got 2 in padding\(\[1, 2\]\) and 3 in padding\(\[1, 2, 3\]\)$"
    )
    for pattern in (lambda: two & three, lambda: two | three, lambda: causal() & ~(two & three)):
        with pytest.raises(ValueError, match=message):
            pattern().allows(range(3), range(3))
        with pytest.raises(ValueError, match=message):
            pattern().cover(range(3), range(3))
        with pytest.raises(ValueError, match=message):
            layout(pattern(), torch.arange(3), 3, block=2)


@pytest.mark.parametrize("wrong", [range(0), range(5, 3), range(0, 6, 2), range(5, 0, -1)])
def test_cover_of_an_empty_or_stepped_range(wrong: range) -> None:
    message = rf"a span must be a non-empty range with step 1, got range\({wrong.start}, "
    with pytest.raises(ValueError, match=message):
        causal().cover(wrong, range(3))
    with pytest.raises(ValueError, match=message):
        causal().cover(range(3), wrong)


def test_a_pattern_without_test_is_none() -> None:
    class Silent(Pattern):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Silent()


@pytest.mark.parametrize("build", [global_at, padding, documents])
def test_truth_values_are_no_numbers(build) -> None:
    with pytest.raises(ValueError, match="integers"):
        build(torch.tensor([False, True]))


def test_known_positions_only() -> None:
    three = documents([0, 0, 1])
    with pytest.raises(ValueError, match=r"documents\(3 ids\) has positions 0 to 2, got keys at"):
        (causal() & three).allows([1], [2, 3])
    with pytest.raises(ValueError, match=r"query positions must be from 0 to 2, got -1 to 2"):
        three.draw(4, 3)
    with pytest.raises(ValueError, match=r"rows for positions 1 to 2, got queries at 0 to 0"):
        from_mask(ones(2, 3)).allows([0], [0, 1, 2])


def test_batches_that_differ_are_not_combined() -> None:
    with pytest.raises(ValueError, match=r"same batch size, got 2 in .* and 3 in"):
        padding([1, 2]) & padding([1, 2, 3])


def test_a_block_holds_something() -> None:
    with pytest.raises(ValueError, match=r"block must be at least 1, got 0$"):
        layout(causal(), torch.arange(3), 3, block=0)


def test_and_or_not_are_no_operators() -> None:
    for combine in (lambda: causal() and prefix(3), lambda: not causal()):
        with pytest.raises(TypeError, match=r"has no truth value: combine .* &, \| and ~$"):
            combine()
