"""Recordings that earlier versions have written."""

import zipfile
from pathlib import Path

import pytest
import torch

import regard

WRITTEN = Path(__file__).parent / "data" / "written-by-0.1.zip"
"""Two calls of two heads over 20 tokens, as `regard.save` of 0.1.0 wrote them."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with zipfile.ZipFile(WRITTEN) as packed:
        packed.extractall(tmp_path)
    return tmp_path / "old.regard"


def test_they_are_read(old: Path) -> None:
    recording = regard.open(old)
    assert recording.title == "old"
    assert recording.about.versions["regard"] == "0.1.0"
    query, key = torch.arange(2 * 2 * 20 * 4.0).sin().double().view(2, 2, 20, 4)
    ahead = torch.ones(20, 20).triu(1).bool()
    for call, scale in zip(recording, (0.5, 2.0), strict=True):
        scores = (scale * query @ key.mT).masked_fill(ahead, -torch.inf)
        torch.testing.assert_close(call.matrix[0].dense(), scores.softmax(dim=-1).float())


def test_what_was_changed_in_one_is_noticed(old: Path) -> None:
    description = old / "zarr.json"
    text = description.read_text(encoding="utf-8")
    description.write_text(text.replace('"title": "old"', '"title": "new"'), encoding="utf-8")
    with pytest.raises(regard.recording.RecordingError, match="its digest does not match"):
        regard.open(old)
