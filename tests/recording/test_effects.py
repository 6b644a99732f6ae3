"""Effects in a recording."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.calls.call import AttentionCall
from regard.capture.seen import Seen
from regard.matrix.derived import Effects
from regard.models import TextDecoder
from regard.recording import Recording, RecordingError
from regard.recording.tiles import Head
from tests.hostile.seal import replace, seal
from tests.recording.conftest import tokens_of

HEADS, KEY_HEADS, TOKENS, DIM = 4, 2, 530, 8


@pytest.fixture(scope="module")
def tensors() -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(HEADS, 16), (KEY_HEADS, 16), (KEY_HEADS, DIM), (HEADS, DIM)]
    return [torch.randn(1, heads, TOKENS, size) for heads, size in shapes]


def call_of(query: Tensor, key: Tensor, value: Tensor, gradient: Tensor) -> AttentionCall:
    """Return a call with effects."""
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    source = Effects(matrix.view.source, value, gradient)
    return AttentionCall.of(matrix, recorded_effects=source)


@pytest.fixture(scope="module")
def recording(tensors: list[Tensor], tmp_path_factory: pytest.TempPathFactory) -> Recording:
    query, key, value, gradient = tensors
    calls = [call_of(*tensors), call_of(2 * query, key, value, -gradient)]
    path = tmp_path_factory.mktemp("effects") / "effects.regard"
    return regard.save(calls, path, tokens=tokens_of(TOKENS), target="Berlin over Paris")


def expected(query: Tensor, key: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """Return A · (g·v − g·o) in float64, [heads, queries, keys]; NaN where masked."""
    q, k, v, g = (x[0].double() for x in (query, key, value, gradient))
    k, v = (x.repeat_interleave(HEADS // KEY_HEADS, dim=0) for x in (k, v))
    ahead = torch.ones(TOKENS, TOKENS).triu(1).bool()
    weights = (q @ k.mT / 4).masked_fill(ahead, -torch.inf).softmax(dim=-1)
    output = weights @ v
    return (weights * (g @ v.mT - (g * output).sum(dim=-1, keepdim=True))).masked_fill(
        ahead, torch.nan
    )


def test_they_come_back(recording: Recording, tensors: list[Tensor]) -> None:
    assert recording.target == "Berlin over Paris"
    found = recording[0].effects[0].dense()
    torch.testing.assert_close(found.double(), expected(*tensors).nan_to_num(), atol=1e-5, rtol=0)
    facts = recording.stored[0].facts.effects
    assert facts is not None
    assert facts.error < 1e-6


def strongest(values: Tensor, cell: int) -> Tensor:
    """Return the number of the largest size of each cell; NaN above the diagonal."""
    count = -(-TOKENS // cell)
    whole = torch.zeros(count * cell, count * cell, dtype=torch.float64)
    whole[:TOKENS, :TOKENS] = values.nan_to_num()
    cells = whole.unfold(0, cell, cell).unfold(1, cell, cell).flatten(start_dim=2)
    found = cells.gather(2, cells.abs().argmax(dim=2, keepdim=True))[..., 0]
    return found.masked_fill(torch.ones_like(found).triu(diagonal=1).bool(), torch.nan)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_cell_is_the_strongest_effect_with_its_sign(
    recording: Recording, tensors: list[Tensor], level: int
) -> None:
    effects, cell = expected(*tensors), 2 ** (2 - level)
    assert recording.max_zoom(0) == 2
    cells = [strongest(one, cell) if cell > 1 else one for one in effects]
    # The two effects of the second query are x and −x: either may be the strongest.
    for one in cells:
        one[0, 0] = torch.nan
    heads: list[tuple[Head, Tensor]] = [(1, cells[1]), ("mean", torch.stack(cells).mean(dim=0))]
    for head, wanted in heads:
        for y, x in ((0, 0), (1, 0), (1, 1)):
            if y >= 2**level:
                continue
            tile = recording.tile(0, head, level, x, y, "effect")
            part = wanted[256 * y :, 256 * x :][:256, :256].numpy()
            found = tile[: part.shape[0], : part.shape[1]]
            if x == y == 0:
                found[0, 0] = np.nan
            # Stored maps are rounded to 12 bits.
            np.testing.assert_allclose(found, part, rtol=1.3e-4 if cell > 1 else 0, atol=2e-6)


def test_the_mean_over_all_heads(recording: Recording) -> None:
    for level in (0, 2):
        tiles = [recording.tile(call, "mean", level, 0, 0, "effect") for call in (0, 1)]
        found = recording.tile("all", "mean", level, 0, 0, "effect")
        np.testing.assert_allclose(found, np.mean(tiles, axis=0), rtol=4e-4, atol=1e-6)


@pytest.fixture
def watched() -> Seen:
    torch.manual_seed(0)
    model = TextDecoder(vocabulary_size=50, model_dim=32, num_layers=2, num_heads=4).eval()
    with regard.watch(model, effects=True) as seen:
        logits = model(torch.randint(50, (2, 20)))[1, -1]
        (logits[7] - logits[9]).backward()
    return seen


def test_a_watched_run(watched: Seen, tmp_path: Path) -> None:
    saved = regard.save(watched, tmp_path / "a.regard", tokens=tokens_of(20), batch=1)
    assert saved.target == "the target"
    heads = watched.effects.heads().effects
    for number, call in enumerate(saved):
        torch.testing.assert_close(call.effects[0].dense(), watched[number].effects[1].dense())
        # The other sequence has no influence on the target.
        found = torch.tensor(saved.measures(number)["effect"], dtype=torch.float32)
        torch.testing.assert_close(found, heads[number])
    again = regard.save(saved, tmp_path / "b.regard", tokens=tokens_of(20))
    torch.testing.assert_close(again[1].effects.dense(), saved[1].effects.dense())


def test_gradients_too_small_for_half_precision(tensors: list[Tensor], tmp_path: Path) -> None:
    query, key, value, gradient = tensors
    call = call_of(query, key, value, 1e-9 * gradient)
    saved = regard.save(call, tmp_path / "a.regard", tokens=tokens_of(TOKENS), dtype="float16")
    difference = saved[0].effects[0].dense() - call.effects[0].dense()
    assert float(difference.abs().max()) < 1e-11
    facts = saved.stored[0].facts.effects
    assert facts is not None
    assert 0 < facts.error < 1e-11


def test_calls_without_a_gradient_have_none(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = TextDecoder(vocabulary_size=50, model_dim=32, num_layers=2, num_heads=4).eval()
    with regard.watch(model, effects=True) as seen:
        model(torch.randint(50, (1, 20)))
    seen[0].checked_gradient.add(torch.ones(1, 4, 20, 8))
    saved = regard.save(seen, tmp_path / "a.regard", tokens=tokens_of(20))
    assert [call.has_effects for call in saved] == [True, False]
    with pytest.raises(ValueError, match="has no effects"):
        _ = saved[1].effects
    with pytest.raises(IndexError, match=r"call 1 .* has no effects"):
        saved.tile(1, 0, 0, 0, 0, "effect")
    with pytest.raises(IndexError, match="not all calls have effects"):
        saved.tile("all", "mean", 0, 0, 0, "effect")


def test_a_target_needs_effects(tmp_path: Path) -> None:
    matrix = regard.AttentionMatrix(*torch.randn(2, 1, 1, 5, 8))
    with pytest.raises(ValueError, match="target must be None if no call has effects, got 'Paris'"):
        regard.save(matrix, tmp_path / "a.regard", tokens=tokens_of(5), target="Paris")
    assert regard.save(matrix, tmp_path / "a.regard", tokens=tokens_of(5)).about.version == 1


def test_a_recording_with_effects_and_no_target_is_damaged(watched: Seen, tmp_path: Path) -> None:
    path = tmp_path / "a.regard"
    regard.save(watched, path, tokens=tokens_of(20), batch=0)
    file = path / "zarr.json"
    replace(file, file.read_bytes().replace(b'"target": "the target"', b'"target": null'))
    seal(path)
    with pytest.raises(RecordingError, match="effects need a target, and a target effects"):
        regard.open(path)
