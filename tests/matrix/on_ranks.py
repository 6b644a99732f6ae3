"""Functions that run on each rank of a sequence that several processes share."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

import regard
from regard.matrix import AttentionMatrix, Result
from regard.matrix.scores import Scores
from tests.attention.cases import Case
from tests.matrix.reductions import every_reduction


def summaries(matrix: AttentionMatrix) -> list[Result]:
    """Return summaries of a matrix, and of a part of it with some rows of each rank."""
    length = matrix.shape[2]
    wanted = every_reduction(length)
    found = list(matrix.summarize(*wanted, progress=False))
    for part in (matrix[:, 1:2, 3 : length - 2 : 2], matrix[0, 0, 5:, : length // 2]):
        found += part.summarize(*wanted[:8], progress=False)
    return found


def sharded(case: Case, dealt: list[Tensor], sinks: Tensor | None, lse: bool) -> AttentionMatrix:
    mine = dealt[distributed.get_rank()]
    query, key = case.query[:, :, mine], case.key[:, :, mine]
    options = case.options | {"positions": mine, "group": distributed.group.WORLD}
    known = regard.attend_with_lse(query, key, key, **options)[1] if lse else None
    return AttentionMatrix(query, key, sinks=sinks, lse=known, **options)


def found(case: Case, dealt: list[Tensor], sinks: Tensor | None, lse: bool) -> list[Any]:
    return summaries(sharded(case, dealt, sinks, lse))


def recorded(case: Case, dealt: list[Tensor], sinks: Tensor, path: Path) -> None:
    """Record the second sequence of a matrix."""
    matrix = sharded(case, dealt, sinks, True)
    regard.save(matrix, path, tokens=["token"] * matrix.shape[2], batch=1)


def not_recorded(path: Path) -> list[str]:
    """Return why matrices can't be recorded."""
    everyone = distributed.group.WORLD
    x, one = torch.randn(1, 2, 4, 3), torch.randn(1, 1, 4, 3)
    others = distributed.new_group()
    found: list[str] = []
    for matrix, group in (
        (AttentionMatrix(x, x, bias=regard.positions.alibi(2), group=everyone), None),
        (AttentionMatrix(one, one, group=everyone), None),
        (AttentionMatrix(x, x, group=everyone)[:, :1], None),
        (AttentionMatrix(x, x, group=everyone), others),
    ):
        try:
            regard.save(matrix, path, tokens=["token"] * 8, group=group)
        except ValueError as error:
            found.append(str(error))
    return found


def rows(case: Case, dealt: list[Tensor]) -> tuple[Tensor, str]:
    """Return the first row of this rank, and why another one can't be read."""
    matrix = sharded(case, dealt, None, False)
    mine, others = dealt[distributed.get_rank()], dealt[1 - distributed.get_rank()]
    try:
        matrix.rows(others[:1])
    except IndexError as error:
        return matrix.rows(mine[:1]), str(error)
    raise AssertionError("a row of another rank was read")


def with_other_sinks() -> None:
    x = torch.randn(1, 2, 4, 3)
    group = distributed.group.WORLD
    AttentionMatrix(x, x, sinks=torch.full((2,), float(distributed.get_rank())), group=group)


def with_a_wrong_lse() -> None:
    """Pass a log-sum-exp that does not fit, on rank 1 only."""
    x = torch.randn(1, 2, 4, 3)
    lse = torch.zeros(1, 2, 4 + distributed.get_rank())
    AttentionMatrix(x, x, lse=lse, group=distributed.group.WORLD)


def kept_after_modification(inference: bool) -> list[Tensor]:
    """Return rows of this rank, some computed before what they are made of was modified in place.

    With `inference`, the tensors are inference tensors, whose versions nobody counts.
    """
    everyone = distributed.group.WORLD
    first = 4 * distributed.get_rank()
    with torch.inference_mode(inference):
        generator = torch.Generator().manual_seed(distributed.get_rank())
        x = torch.randn(1, 2, 4, 3, generator=generator)
        values, sinks = torch.zeros(1, 1, 8, 8), torch.zeros(2)
        lse = torch.full((1, 2, 4), torch.nan)
        bias = regard.positions.from_tensor(values)
        options: dict[str, Any] = {"bias": bias, "sinks": sinks, "group": everyone}
        matrices = [AttentionMatrix(x, x, lse=known, **options) for known in (None, lse)]
    expected = AttentionMatrix(x, x, lse=lse, **options).rows([first])
    with torch.inference_mode(inference):
        sinks.fill_(5.0)
        lse.fill_(5.0)
        if inference:
            x.fill_(1.0)
            values[..., ::2] = -3.0
    return [expected, *(matrix.rows([first]) for matrix in matrices)]


def with_gradients() -> list[bool]:
    """Return whether what a matrix computes from learned tensors has gradients."""
    shapes = ((1, 2, 4, 3), (2,), (1, 2, 4))
    x, sinks, lse = (torch.zeros(shape, requires_grad=True) for shape in shapes)
    first = 4 * distributed.get_rank()
    matrix = AttentionMatrix(x, x, sinks=sinks, lse=lse, group=distributed.group.WORLD)
    source = matrix.view.source
    assert isinstance(source, Scores)
    kept = (matrix.rows([first]), source.call.sinks, source.call.lse)
    return [isinstance(one, Tensor) and one.requires_grad for one in kept]
