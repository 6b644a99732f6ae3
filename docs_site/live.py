"""Write the page and the map that the site shows live: `python -m docs_site.live FOLDER`.

They are of MiniLM, on a sentence and on the beginning of Moby-Dick.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import regard
from materials import minilm, moby_dick
from regard.server import publish

SENTENCE = "The animal didn't cross the street because it was too tired."
CHAPTER = "Call me Ishmael."
HEADS = [*(f"2.{head}" for head in range(12)), "2.mean"]
"""Heads of the map: each is half a megabyte."""


def main(folder: Path) -> None:
    """Write `page.html` and `map/` into a folder."""
    watch = _watcher()
    seen, tokens, _ = watch(SENTENCE)
    regard.page(seen, tokens, title="MiniLM: a tired animal").save(folder / "page.html")
    seen, tokens, texts = watch(_chapter())
    about = {"title": "Moby-Dick, chapter 1", "model": "MiniLM"}
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "chapter.regard"
        recording = regard.save(seen, path, tokens=tokens, progress=False, **texts, **about)
        depth = recording.full_zoom
        publish(recording, folder / "map", heads=HEADS, depth=depth, pools=["mean"], progress=False)


def _watcher() -> Callable[[str], tuple[Any, list[str], dict[str, Any]]]:
    """Return a function from a text to the calls of MiniLM, its tokens, and where these stand."""
    from transformers import AutoModel, AutoTokenizer, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    model = AutoModel.from_pretrained(minilm()).eval()

    def watch(text: str) -> tuple[Any, list[str], dict[str, Any]]:
        inputs = tokenizer(
            text, truncation=True, max_length=256, return_offsets_mapping=True, return_tensors="pt"
        )
        offsets = inputs.pop("offset_mapping")[0].tolist()
        with torch.no_grad(), regard.watch(model) as seen:
            model(**inputs)
        seen.verify()
        end = max(stop for _, stop in offsets)
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        return seen, tokens, {"text": text[:end], "offsets": offsets}

    return watch


def _chapter() -> str:
    text = moby_dick().read_text(encoding="utf-8")
    return text[text.index(CHAPTER) :][:4000]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
