"""Recordings to look into."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from regard import AttentionMatrix, causal, window
from regard.recording import Recording, save

WORDS = ("Call", "Ġme", "ĠIsh", "mael", ".", "ĠSome", "Ġyears", "Ġago", "Ċ")


class Made(NamedTuple):
    """A recording, where it lies, and what its weights are."""

    recording: Recording
    path: Path
    weights: list[Tensor]


def tokens_of(count: int) -> list[str]:
    return [WORDS[place % len(WORDS)] for place in range(count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Made:
    """Two calls of 4 heads over 1,100 tokens: all keys before, and only those near by."""
    torch.manual_seed(0)
    query, key = torch.randn(1, 4, 1100, 16), torch.randn(1, 2, 1100, 16)
    matrices = [
        AttentionMatrix(query, key, pattern=causal()),
        AttentionMatrix(2 * query, key, pattern=causal() & window(before=90)),
    ]
    path = tmp_path_factory.mktemp("made") / "made.regard"
    recording = save(matrices, path, tokens=tokens_of(1100), model="made")
    return Made(recording, path, [_float64(query, key, None), _float64(2 * query, key, 90)])


def _float64(query: Tensor, key: Tensor, before: int | None) -> Tensor:
    """Return softmax(q k / √d) in float64, [heads, queries, keys]."""
    query, key = query[0].double(), key[0].double().repeat_interleave(2, dim=0)
    scores = query @ key.mT / query.shape[-1] ** 0.5
    place = torch.arange(scores.shape[-1])
    distance = place[:, None] - place
    forbidden = distance < 0
    if before is not None:
        forbidden |= distance > before
    return scores.masked_fill(forbidden, -torch.inf).softmax(dim=-1)
