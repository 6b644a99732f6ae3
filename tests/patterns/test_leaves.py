"""Each pattern by itself, against a predicate in plain Python."""

from collections.abc import Callable, Sequence

import pytest
import torch

from regard.patterns import (
    Pattern,
    causal,
    columns,
    documents,
    everyone,
    from_mask,
    global_at,
    neighbours,
    padding,
    pairs,
    prefix,
    strided,
    window,
)

Predicate = Callable[[int, int, int], bool]
"""Whether, in sequence b, position i may attend to position j."""

KEYS = 13
SORTED = [0, 0, 0, 1, 1, 4, 4, 4, 4, 5, 6, 6, 6]
SHUFFLED = [3, -1, 3, 3, 0, -1, 7, 0, 0, 3, 3, 7, -1]
EDGES = [(0, 1), (0, 3), (12, 0), (5, 5), (5, 4), (5, 6), (0, 1), (7, 12)]
MASK = torch.rand(2, KEYS, KEYS, generator=torch.Generator().manual_seed(5)) < 0.4

# These know the positions 0 … 12 only.
PLACED: list[tuple[Pattern, Predicate]] = [
    (documents(SORTED), lambda b, i, j: SORTED[i] == SORTED[j]),
    (documents(SHUFFLED), lambda b, i, j: SHUFFLED[i] == SHUFFLED[j]),
    (
        documents(torch.tensor(SHUFFLED, dtype=torch.int8)),
        lambda b, i, j: SHUFFLED[i] == SHUFFLED[j],
    ),
    (
        documents([SORTED, SHUFFLED]),
        lambda b, i, j: (SORTED, SHUFFLED)[b][i] == (SORTED, SHUFFLED)[b][j],
    ),
    (documents([SHUFFLED]), lambda b, i, j: SHUFFLED[i] == SHUFFLED[j]),
    (from_mask(MASK[0]), lambda b, i, j: bool(MASK[0][i][j])),
    (from_mask(MASK), lambda b, i, j: bool(MASK[b][i][j])),
]

# In these, queries may stand anywhere.
UNPLACED: list[tuple[Pattern, Predicate]] = [
    (everyone(), lambda b, i, j: True),
    (causal(), lambda b, i, j: j in range(i + 1)),
    (window(before=0), lambda b, i, j: i == j),
    (window(before=3), lambda b, i, j: j in (i - 3, i - 2, i - 1, i)),
    (window(before=2, after=5), lambda b, i, j: j in range(i - 2, i + 6)),
    (window(before=0, after=1), lambda b, i, j: j in (i, i + 1)),
    (window(before=100, after=100), lambda b, i, j: True),
    (strided(1), lambda b, i, j: True),
    (strided(5), lambda b, i, j: abs(i - j) in (0, 5, 10, 15, 20, 25)),
    (strided(17), lambda b, i, j: abs(i - j) in (0, 17)),
    (columns(every=1), lambda b, i, j: True),
    (columns(every=5), lambda b, i, j: j in (0, 5, 10)),
    (columns(every=17), lambda b, i, j: j == 0),
    (global_at([7, 0, 7]), lambda b, i, j: bool({i, j} & {0, 7})),
    (global_at(torch.tensor([12])), lambda b, i, j: 12 in (i, j)),
    (pairs(), lambda b, i, j: True),
    (pairs(queries=[], keys=range(13)), lambda b, i, j: False),
    (pairs(queries=range(3, 7)), lambda b, i, j: i in range(3, 7)),
    (pairs(keys=slice(5, None)), lambda b, i, j: j >= 5),
    (pairs(queries=[7, 2, 3, 7], keys=4), lambda b, i, j: i in (2, 3, 7) and j == 4),
    (
        pairs(queries=slice(9), keys=range(1, 12, 3)),
        lambda b, i, j: i < 9 and j in (1, 4, 7, 10),
    ),
    (pairs(keys=torch.tensor([12, 0])), lambda b, i, j: j in (0, 12)),
    (padding([0, 5, 13]), lambda b, i, j: j < (0, 5, 13)[b]),
    (padding(torch.tensor([7])), lambda b, i, j: j < 7),
    (padding(starts=[0, 5, 13]), lambda b, i, j: j >= (0, 5, 13)[b]),
    (padding(starts=torch.tensor([4])), lambda b, i, j: j >= 4),
    (padding(starts=[100]), lambda b, i, j: False),
    (padding([0, 5, 6], starts=[3, 8, 2]), lambda b, i, j: j in ((), range(8, 13), range(2, 8))[b]),
    (padding([3, 13], starts=[0, 0]), lambda b, i, j: j < (3, 13)[b]),
    (padding((2, 3), starts=torch.tensor([1, 0])), lambda b, i, j: j in ((1, 2), (0, 1, 2))[b]),
    (prefix(0), lambda b, i, j: False),
    (prefix(5), lambda b, i, j: j in (0, 1, 2, 3, 4)),
    (prefix(100), lambda b, i, j: True),
    (neighbours(EDGES), lambda b, i, j: (i, j) in EDGES),
    (neighbours(torch.tensor(EDGES)), lambda b, i, j: (i, j) in EDGES),
    (neighbours([(2, 1)]), lambda b, i, j: (i, j) == (2, 1)),
]


def name(value: object) -> str:
    return repr(value) if isinstance(value, Pattern) else ""


def assert_agrees(
    pattern: Pattern, predicate: Predicate, queries: Sequence[int], keys: Sequence[int]
) -> None:
    drawn = [
        [[predicate(b, i, j) for j in keys] for i in queries]
        for b in range(pattern.batch_size or 1)
    ]
    expected = torch.tensor(drawn if pattern.batch_size else drawn[0])
    assert torch.equal(pattern.allows(queries, keys), expected)
    assert torch.equal(pattern.allows(torch.tensor(queries), torch.tensor(keys)), expected)


@pytest.mark.parametrize(("pattern", "predicate"), PLACED + UNPLACED, ids=name)
def test_every_pair(pattern: Pattern, predicate: Predicate) -> None:
    assert_agrees(pattern, predicate, range(KEYS), range(KEYS))


@pytest.mark.parametrize(("pattern", "predicate"), PLACED + UNPLACED, ids=name)
@pytest.mark.parametrize(("first_query", "num_queries"), [(12, 1), (6, 7), (4, 3)])
def test_queries_at_an_offset(
    pattern: Pattern, predicate: Predicate, first_query: int, num_queries: int
) -> None:
    queries = range(first_query, first_query + num_queries)
    assert_agrees(pattern, predicate, queries, range(KEYS))


@pytest.mark.parametrize(("pattern", "predicate"), PLACED + UNPLACED, ids=name)
def test_positions_in_any_order(pattern: Pattern, predicate: Predicate) -> None:
    assert_agrees(pattern, predicate, [5, 0, 12, 5, 7, 3], [12, 4, 4, 0, 6])


@pytest.mark.parametrize(("pattern", "predicate"), UNPLACED, ids=name)
def test_queries_outside_of_the_keys(pattern: Pattern, predicate: Predicate) -> None:
    assert_agrees(pattern, predicate, range(-6, KEYS + 6), range(KEYS))


@pytest.mark.parametrize(("pattern", "predicate"), PLACED + UNPLACED, ids=name)
@pytest.mark.parametrize("num_queries", [1, 5, KEYS])
def test_the_last_query_is_drawn_at_the_last_key(
    pattern: Pattern, predicate: Predicate, num_queries: int
) -> None:
    expected = "\n\n".join(
        "\n".join(
            " ".join("■" if predicate(b, i, j) else "·" for j in range(KEYS))
            for i in range(KEYS - num_queries, KEYS)
        )
        for b in range(pattern.batch_size or 1)
    )
    assert pattern.draw(num_queries, KEYS) == expected


def test_a_drawing_is_square_if_no_keys_are_named() -> None:
    assert causal().draw(3) == "■ · ·\n■ ■ ·\n■ ■ ■"


@pytest.mark.parametrize("num_rows", [1, 4])
def test_the_last_row_of_a_given_mask_stands_at_the_last_key(num_rows: int) -> None:
    rows = MASK[0, :num_rows]
    allowed = from_mask(rows).allows(range(KEYS - num_rows, KEYS), range(KEYS))
    assert torch.equal(allowed, rows)


def test_what_was_handed_over_may_change_afterwards() -> None:
    ids, lengths, mask = torch.tensor([0, 0, 1]), torch.tensor([3, 3]), torch.ones(3, 3).bool()
    edges, starts = torch.tensor([[0, 1]]), torch.tensor([1, 2])
    kept = [documents(ids), padding(lengths), from_mask(mask), neighbours(edges)]
    kept += [padding(starts=starts), padding(torch.tensor([1, 1]), starts=starts)]
    before = [pattern.allows(range(3), range(3)) for pattern in kept]
    for tensor in (ids, lengths, mask, edges, starts):
        tensor.zero_()
    for pattern, expected in zip(kept, before, strict=True):
        assert torch.equal(pattern.allows(range(3), range(3)), expected)


@pytest.mark.parametrize(
    ("pattern", "batch_size"),
    [(pattern, None) for pattern, _ in UNPLACED if "padding" not in repr(pattern)]
    + [
        (padding([0, 5, 13]), 3),
        (padding([7]), 1),
        (padding(starts=[0, 5, 13]), 3),
        (padding([2, 1], starts=[0, 5]), 2),
        (documents(SORTED), None),
        (documents([SORTED, SHUFFLED]), 2),
        (documents([SORTED]), 1),
        (from_mask(MASK[0]), None),
        (from_mask(MASK), 2),
        (from_mask(MASK[:1]), 1),
    ],
    ids=name,
)
def test_batch_size(pattern: Pattern, batch_size: int | None) -> None:
    assert pattern.batch_size == batch_size
    sizes = [] if batch_size is None else [batch_size]
    assert list(pattern.allows(range(3), range(5)).shape) == [*sizes, 3, 5]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (everyone(), "everyone()"),
        (causal(), "causal()"),
        (window(before=3), "window(before=3)"),
        (window(before=3, after=2), "window(before=3, after=2)"),
        (strided(5), "strided(5)"),
        (columns(every=5), "columns(every=5)"),
        (global_at([7, 0, 7]), "global_at([0, 7])"),
        (pairs(), "pairs(queries=slice(None, None), keys=slice(None, None))"),
        (pairs(queries=range(3, 7), keys=[9, 4]), "pairs(queries=range(3, 7), keys=[4, 9])"),
        (pairs(queries=slice(3, None), keys=[]), "pairs(queries=slice(3, None), keys=[])"),
        (documents(SORTED), "documents(13 ids)"),
        (documents([SORTED, SHUFFLED]), "documents(2 × 13 ids)"),
        (padding([5, 13]), "padding([5, 13])"),
        (padding([5, 13], starts=[0, 0]), "padding([5, 13])"),
        (padding([5, 3], starts=[0, 2]), "padding([5, 3], starts=[0, 2])"),
        (padding(starts=[0, 2]), "padding(starts=[0, 2])"),
        (padding(starts=[0]), "padding(starts=[0])"),
        (prefix(5), "prefix(5)"),
        (neighbours(EDGES), "neighbours(7 edges)"),
        (from_mask(MASK[0]), "from_mask(13 × 13)"),
        (from_mask(MASK), "from_mask(2 × 13 × 13)"),
        (from_mask(MASK[0, :2]), "from_mask(2 × 13)"),
        (causal() & prefix(2), "causal() & prefix(2)"),
        (causal() | prefix(2), "causal() | prefix(2)"),
        (~causal(), "~causal()"),
        (~~causal(), "~~causal()"),
        (~(causal() & prefix(2)), "~(causal() & prefix(2))"),
        (~causal() & ~prefix(2), "~causal() & ~prefix(2)"),
        (causal() & (prefix(2) | strided(3)), "causal() & (prefix(2) | strided(3))"),
        ((prefix(2) | strided(3)) & causal(), "(prefix(2) | strided(3)) & causal()"),
        (causal() | prefix(2) & strided(3), "causal() | (prefix(2) & strided(3))"),
        (causal() & prefix(2) | strided(3), "(causal() & prefix(2)) | strided(3)"),
        (causal() & prefix(2) & strided(3), "causal() & prefix(2) & strided(3)"),
        (causal() & (prefix(2) & strided(3)), "causal() & (prefix(2) & strided(3))"),
        (causal() | prefix(2) | strided(3), "causal() | prefix(2) | strided(3)"),
        (causal() | (prefix(2) | strided(3)), "causal() | (prefix(2) | strided(3))"),
    ],
)  # fmt: skip
def test_repr(pattern: Pattern, expected: str) -> None:
    assert repr(pattern) == expected


def test_repr_of_what_has_no_tensors_can_be_evaluated() -> None:
    pattern = causal() & (window(before=3, after=1) | ~(strided(5) | columns(every=2))) | prefix(7)
    pattern |= pairs(queries=slice(5, None), keys=[1, 2, 9]) & pairs(queries=range(4, 9), keys=3)
    assert eval(repr(pattern)) == pattern


def test_left_padding_holds_for_whatever_is_added() -> None:
    pattern = padding(starts=[2, 0])
    for num_keys in (3, 7, 1000):
        pattern.check(2, range(num_keys), num_keys)
        allowed = pattern.allows([num_keys - 1], range(num_keys))
        assert allowed.sum(dim=2).tolist() == [[num_keys - 2], [num_keys]]


def test_equal_patterns_are_found_in_a_dictionary() -> None:
    assert {causal() & window(before=3): 1}[causal() & window(before=3)] == 1
    assert global_at([1, 0]) == global_at([0, 1, 1])
    assert hash(global_at([1, 0])) == hash(global_at([0, 1, 1]))
    assert pairs(keys=[3, 1, 2]) == pairs(keys=range(1, 4))
    assert causal() & prefix(3) != causal() | prefix(3)
