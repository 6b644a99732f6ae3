"""A real encoder, its weights written out, and the windows of treebanks."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

import regard
from materials import minilm, treebank
from regard.atlas.annotated import AnnotatedDocument, read
from regard.atlas.probes import Probe
from regard.atlas.tally import Tally
from regard.atlas.window import Notes, TokenWindow

Weights = NDArray[np.float64]


def documents_of(name: str) -> list[AnnotatedDocument]:
    """Return the documents of a file of the treebank."""
    return read((treebank() / f"{name}.conllu").read_text(encoding="utf-8"))[0]


def model_of(kind: str) -> Any:
    """Return MiniLM in float64 with an attention of transformers."""
    model = transformers.AutoModel.from_pretrained(minilm(), attn_implementation=kind)
    return model.double().eval()


@torch.no_grad()
def dense(model: Any, texts: Sequence[str]) -> list[Weights]:
    """Return the weights of each text, [layers, heads, tokens, tokens], from padded batches.

    Texts of different lengths share a batch, as batches of the survey never do.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    found: list[Weights] = []
    for start in range(0, len(texts), 8):
        inputs = tokenizer(list(texts[start : start + 8]), padding=True, return_tensors="pt")
        layers = model(**inputs, output_attentions=True).attentions
        together = torch.stack(layers, dim=1).numpy()
        for weights, length in zip(together, inputs["attention_mask"].sum(dim=1), strict=True):
            found.append(weights[:, :, :length, :length])
    return found


def word_weights(window: TokenWindow, weights: Weights) -> Weights:
    """Return attention from word to word, [layers, heads, words, words], token by token."""
    size = len(window.words)
    found = np.zeros((*weights.shape[:2], size, size))
    for i, (first, end) in enumerate(window.words):
        for j, (start, stop) in enumerate(window.words):
            for query in range(first, end):
                for key in range(start, stop):
                    found[:, :, i, j] += weights[:, :, query, key] / (end - first)
    return found


@torch.no_grad()
def survey(model: Any, probe: Probe, windows: Sequence[TokenWindow]) -> Tally:
    """Run a probe over windows, in batches of the same length."""
    tally = Tally()
    batches: dict[int, list[TokenWindow]] = defaultdict(list)
    for window in windows:
        batches[len(window.ids)].append(window)
    for batch in batches.values():
        with regard.watch(model, keep=[probe.groups(batch)]) as seen:
            model(input_ids=torch.tensor([window.ids for window in batch]))
        for call in seen:
            probe.score(batch, call.results[0].weights.numpy(), call.index, tally)
        probe.count(batch, tally)
    return tally


def made(notes: Notes, kind: str = "sentence", split: int = 0) -> TokenWindow:
    """Return a window with a token for each word."""
    size = len(notes.forms)
    spans = tuple((number, number + 1) for number in range(size))
    return TokenWindow(
        kind=kind,
        name="made/0",
        ids=tuple(range(size)),
        offsets=spans,
        special=(False,) * size,
        text="x" * size,
        split=split,
        words=spans,
        notes=notes,
    )
