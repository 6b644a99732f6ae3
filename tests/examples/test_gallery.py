"""The gallery is drawn by its script."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image


@pytest.mark.slow
def test_figures_and_pages_are_drawn(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.gallery", "--length", "8", "--out", str(tmp_path)]
    subprocess.run([*command, "--only", "heatmap", "page", "overlay"], check=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "heatmap-minilm-8.png",
        "heatmap-smollm2-8.png",
        "overlay-vit-196.png",
        "page-minilm-8.png",
        "page-minilm-sentence.png",
        "page-smollm2-8.png",
    }
    for path in tmp_path.iterdir():
        assert path.stat().st_size < 200_000
        with Image.open(path) as picture:
            assert picture.width >= 300
            # A picture of one colour shows nothing.
            assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 2
