"""Tiles at every level, against the dense matrix in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import AttentionMatrix, causal
from regard.recording import save, schema
from tests.recording.conftest import Made, tokens_of

# Stored maps are rounded to 12 bits; what is computed has the rounding of float32.
ROUNDED, COMPUTED = 1.5e-4, 2e-5


def pooled(weights: Tensor, cell: int, pool: str) -> Tensor:
    """Pool [heads, n, n] into cells, the last of which are smaller, by loops over their edges."""
    if cell == 1:
        return weights
    size = weights.shape[-1]
    rows = torch.stack(
        [_reduced(weights[:, at : at + cell], 1, pool) for at in range(0, size, cell)], dim=1
    )
    return torch.stack(
        [_reduced(rows[:, :, at : at + cell], 2, pool) for at in range(0, size, cell)], dim=2
    )


def _reduced(values: Tensor, axis: int, pool: str) -> Tensor:
    return values.amax(dim=axis) if pool == "max" else values.mean(dim=axis)


@pytest.mark.pairwise
@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("head", [0, 3, "mean"])
def test_every_tile_is_the_pooled_matrix(
    made: Made, call: int, level: int, head: int | str, pool: str
) -> None:
    recording = made.recording
    assert recording.max_zoom(call) == 3
    cell = 2 ** (3 - level)
    count = 2**level
    rows = [
        np.concatenate(
            [recording.tile(call, head, level, x, y, pool) for x in range(count)], axis=1
        )
        for y in range(count)
    ]
    found = torch.from_numpy(np.concatenate(rows)).double()
    wanted = pooled(made.weights[call], cell, pool)
    wanted = wanted.mean(dim=0) if head == "mean" else wanted[head]
    size = len(wanted)
    assert found[size:].isnan().all()
    assert found[:, size:].isnan().all()
    inside = found[:size, :size]
    # NaN says that nobody may look: there all weights are 0, and nowhere else is it said.
    assert torch.equal(inside.isnan(), wanted == 0.0)
    known = ~inside.isnan()
    error = (inside - wanted)[known].abs() / wanted[known]
    assert error.max() < (ROUNDED if cell == 8 else COMPUTED)


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("level", [0, 2, 3])
def test_the_mean_of_all_heads_of_all_calls(made: Made, level: int, pool: str) -> None:
    recording = made.recording
    assert recording.max_zoom("all") == 3
    cell = 2 ** (3 - level)
    wanted = torch.cat([pooled(one, cell, pool) for one in made.weights]).mean(dim=0)
    for y in range(-(-len(wanted) // 256)):
        for x in range(-(-len(wanted) // 256)):
            part = wanted[256 * y : 256 * (y + 1), 256 * x : 256 * (x + 1)]
            tile = torch.from_numpy(recording.tile("all", "mean", level, x, y, pool)).double()
            found = tile[: part.shape[0], : part.shape[1]]
            # The second call may not look far, but the first may: so somebody looks there.
            assert torch.equal(found.isnan(), part == 0.0)
            known = ~found.isnan()
            error = (found - part)[known].abs() / part[known]
            # What is stored was rounded for each call, and once more for the mean.
            assert (error < (2 * ROUNDED if cell == 8 else COMPUTED)).all()


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_calls_of_more_heads_count_for_more(tmp_path: Path, pool: str) -> None:
    chance = torch.Generator().manual_seed(0)
    matrices: list[AttentionMatrix] = []
    weights: list[Tensor] = []
    for heads in (1, 3):
        query, key = (2 * torch.randn(1, heads, 300, 8, generator=chance) for _ in range(2))
        matrices.append(AttentionMatrix(query, key))
        weights.append((query[0].double() @ key[0].double().mT / 8**0.5).softmax(dim=-1))
    recording = save(matrices, tmp_path / "it.regard", tokens=tokens_of(300), progress=False)
    # The coarser map is stored, and the finer one computed.
    for level, cell in ((0, 2), (1, 1)):
        wanted = pooled(torch.cat(weights), cell, pool).mean(dim=0)[:256, :256]
        found = torch.from_numpy(recording.tile("all", "mean", level, 0, 0, pool)).double()
        found = found[: len(wanted), : len(wanted)]
        torch.testing.assert_close(found, wanted, rtol=2 * ROUNDED, atol=0)


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("length", [1030, 1299])
def test_each_stored_map_is_made_from_the_one_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, pool: str
) -> None:
    # As in a text of many thousand tokens: several maps, each of several bands of rows.
    monkeypatch.setattr(schema, "FINEST", 2)
    chance = torch.Generator().manual_seed(length)
    query, key = (torch.randn(1, 2, length, 8, generator=chance) for _ in range(2))
    matrix = AttentionMatrix(3 * query, key, pattern=causal())
    recording = save(matrix, tmp_path / "it.regard", tokens=tokens_of(length), progress=False)
    assert recording.stored[0].facts.cells == [2, 4, 8]
    scores = 3 * query[0].double() @ key[0].double().mT / 8**0.5
    later = torch.ones(length, length).triu(1).bool()
    weights = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
    for level, cell in ((2, 2), (1, 4), (0, 8)):
        wanted = pooled(weights, cell, pool)[1]
        for y in range(2**level):
            for x in range(2**level):
                part = wanted[256 * y : 256 * (y + 1), 256 * x : 256 * (x + 1)]
                found = torch.from_numpy(recording.tile(0, 1, level, x, y, pool)).double()
                found = found[: part.shape[0], : part.shape[1]]
                assert torch.equal(found.isnan(), part == 0.0)
                known = ~found.isnan()
                assert ((found - part)[known].abs() <= ROUNDED * part[known]).all()


@pytest.mark.usefixtures("unchecked")
def test_a_tile_that_is_not_there(made: Made) -> None:
    with pytest.raises(IndexError, match="level must be from 0 to 3, got 4"):
        made.recording.tile("all", "mean", 4, 0, 0)
    with pytest.raises(ValueError, match="head must be 'mean' if call is 'all', got 2"):
        made.recording.tile("all", 2, 0, 0, 0)
    with pytest.raises(IndexError, match="level must be from 0 to 3, got 4"):
        made.recording.tile(0, 0, 4, 0, 0)
    with pytest.raises(IndexError, match="x must be from 0 to 1 at level 1, got 2"):
        made.recording.tile(0, 0, 1, 2, 0)
    with pytest.raises(IndexError, match=r"head must be from 0 to 3 .*, got 4"):
        made.recording.tile(0, 4, 1, 0, 0)
    with pytest.raises(IndexError, match="2 calls, counted from 0, got number 2"):
        made.recording.tile(2, 0, 1, 0, 0)
    with pytest.raises(ValueError, match="'mean', 'max' or 'effect', got 'min'"):
        made.recording.tile(0, 0, 1, 0, 0, "min")


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("head", [1, "mean"])
def test_lines(made: Made, head: int | str, pool: str) -> None:
    weights = made.weights[1]
    entropy = torch.special.entr(weights).sum(dim=-1)
    may_look = (weights[0] > 0).sum(dim=0)
    received = weights.sum(dim=1) / may_look
    for name, values in (("entropy", entropy), ("received", received)):
        wanted = values.mean(dim=0) if head == "mean" else values[head]
        for level, cell in ((0, 8), (3, 1)):
            cells = [part.max() if pool == "max" else part.mean() for part in wanted.split(cell)]
            tiles = [made.recording.line(1, head, name, level, x, pool) for x in range(2**level)]
            found = torch.from_numpy(np.concatenate(tiles)).double()
            torch.testing.assert_close(
                found[: len(cells)], torch.stack(cells), rtol=1e-4, atol=1e-6
            )
            assert found[len(cells) :].isnan().all()


def test_small_maps(made: Made) -> None:
    wanted = pooled(made.weights[0], 35, "mean")
    found = torch.from_numpy(made.recording.thumbs(0)).double()
    assert found.shape == (4, 32, 32)
    torch.testing.assert_close(found.nan_to_num(), wanted, rtol=1e-4, atol=1e-9)
    assert torch.equal(found.isnan(), wanted == 0.0)
