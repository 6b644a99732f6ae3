"""Draw every figure and the page on two real models, from 8 to 8,192 tokens.

MiniLM, an encoder of 6 layers of 12 heads, reads 8 and 300 tokens; SmolLM2-135M, a decoder of 30
layers of 9 heads, also 8,192, of Moby Dick. A small vision transformer with random weights looks at
a picture that is drawn here: its figure shows what such a figure looks like, and nothing else.

    python -m examples.gallery                          writes to docs/gallery
    python -m examples.gallery --length 8 300           without the long text, which takes minutes
    python -m examples.gallery --only heatmap tree

Each file is called by figure, model and number of tokens: heatmap-smollm2-8192.png.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import torch
from PIL import Image
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    ViTConfig,
    ViTModel,
    logging,
)

import regard
from examples.screenshot import Screenshot
from materials import minilm, moby_dick, smollm2
from regard.views import graph, heads, heatmap, offsets, overlay, tree

LENGTHS = (8, 300, 8192)
LARGEST = 200_000
"""The most bytes of a picture."""

SENTENCE = "The animal didn't cross."
"""Eight tokens with those that MiniLM puts around them; SmolLM2 reads eight of Moby Dick."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a model did while it read a text.

    Attributes:
        model: its short name, for files.
        tokens: what it read.
        seen: its calls of attention.
        head: the layer and head of which to draw more.
        others: heads of that layer to draw beside it.
    """

    model: str
    tokens: list[str]
    seen: Any
    head: tuple[int, int]
    others: tuple[int, ...]

    @property
    def call(self) -> Any:
        """The call of the layer of which to draw more."""
        return self.seen[self.head[0]]


Draw = Callable[[Reading], Any]


def figures(length: int) -> dict[str, Draw]:
    """Return what is drawn over a text of some length, by the name of its file."""
    found: dict[str, Draw] = {
        "heatmap": lambda it: heatmap(it.call, it.tokens, head=it.head[1], pool="max"),
        "heatmap-log": lambda it: heatmap(it.call, it.tokens, head=it.head[1], scale="log"),
        "heatmap-several": lambda it: heatmap(it.call, it.tokens, head=it.others, scale="log"),
        "heads": lambda it: heads(it.seen, tokens=it.tokens),
        "heads-entropy": lambda it: heads(it.seen, "entropy"),
        "graph": lambda it: graph(it.call, it.tokens, head=it.head[1]),
        "offsets": lambda it: offsets(it.call, head=it.head[1]),
        "offsets-several": lambda it: offsets(it.call.matrix[:, : len(it.others)]),
        "offsets-heads": lambda it: offsets(it.call),
        "page": _page,
        "page-dark": lambda it: replace(_page(it), dark=True),
    }
    if length > 300:
        # Heads rest on the first token: what else they do is seen without it.
        found["graph-rest"] = lambda it: graph(it.call.matrix[0, it.head[1], 1:, 1:], it.tokens)
    else:
        found["graph-layers"] = lambda it: graph(it.seen, it.tokens)
        found["offsets-layers"] = lambda it: offsets(it.seen)
    if length <= 100:
        found["tree"] = lambda it: tree(it.call, it.tokens, head=it.head[1])
        found["heatmap-dark"] = lambda it: _dark(lambda: found["heatmap"](it))
        found["graph-dark"] = lambda it: _dark(lambda: found["graph"](it))
    return found


@cache
def _page(it: Reading) -> Screenshot:
    layer, head = it.head
    page = regard.page(it.seen, it.tokens, title=it.model, about=f"{len(it.tokens):,} tokens")
    return Screenshot(page, f"layer={layer}&head={head}&token={len(it.tokens) * 3 // 4}")


def _dark(draw: Callable[[], Any]) -> Any:
    with matplotlib.style.context("dark_background"):
        return draw()


@torch.no_grad()
def read_minilm(length: int) -> Reading:
    model = AutoModel.from_pretrained(minilm()).eval()
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    text = SENTENCE if length <= 8 else _book(length)
    ids = tokenizer(text, truncation=True, max_length=length)["input_ids"]
    with regard.watch(model) as seen:
        model(torch.tensor([ids]))
    return Reading("minilm", tokenizer.convert_ids_to_tokens(ids), seen, (2, 8), (0, 4, 8))


@torch.no_grad()
def read_smollm2(length: int) -> Reading:
    model = AutoModelForCausalLM.from_pretrained(smollm2()).eval()
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    ids = tokenizer(_book(length))["input_ids"][:length]
    # The decoder alone: nobody asks for 8,192 rows of probabilities of 49,152 words.
    with regard.watch(model.model) as seen:
        model.model(torch.tensor([ids]), use_cache=False)
    head = (16, 0) if length <= 300 else (18, 6)
    return Reading("smollm2", tokenizer.convert_ids_to_tokens(ids), seen, head, (0, 3, 6))


def _book(length: int) -> str:
    """Return the beginning of Moby Dick, more than so many tokens of it."""
    text = moby_dick().read_text(encoding="utf-8")
    start = text.index("Call me Ishmael")
    return text[start : start + 8 * length + 100]


@torch.no_grad()
def read_vit() -> tuple[Any, np.ndarray]:
    """Return what a vision transformer of random weights does with a picture, and the picture."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 96}
    config = ViTConfig(
        num_hidden_layers=2, image_size=224, patch_size=16, initializer_range=0.25, **sizes
    )
    model = ViTModel(config, add_pooling_layer=False).eval()
    shown = picture(224)
    pixels = torch.tensor(shown).permute(2, 0, 1)[None].float() * 2 - 1
    with regard.watch(model) as seen:
        model(pixels)
    return seen, shown


def picture(size: int) -> np.ndarray:
    """Return a red sun over hills, [size, size, 3], from 0 to 1."""
    y, x = np.mgrid[0:size, 0:size] / size
    sky = np.stack([0.55 + 0.4 * y, 0.75 + 0.15 * y, 0.95 - 0.1 * y], axis=-1)
    sun = (x - 0.68) ** 2 + (y - 0.3) ** 2 < 0.015
    sky[sun] = (0.98, 0.45, 0.25)
    for height, wave, colour in ((0.62, 5.0, (0.45, 0.6, 0.5)), (0.76, 9.0, (0.2, 0.4, 0.3))):
        hill = y > height + 0.06 * np.sin(wave * x + height * 10)
        sky[hill] = np.array(colour) * (1.15 - 0.4 * y[hill, None])
    return np.clip(sky, 0.0, 1.0)


def drawings(lengths: Sequence[int]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield the name of a figure, that of its file, and what draws it."""
    for length in lengths:
        for model, read in (("minilm", read_minilm), ("smollm2", read_smollm2)):
            if model == "minilm" and length > 512:
                continue
            # A text is read once, when the first of its figures is asked for.
            reading = cache(partial(read, length))
            for name, draw in figures(length).items():
                yield name, f"{name}-{model}-{length}", partial(_drawn, draw, reading)
    for kind, address in _SENTENCES.items():
        draw = partial(draw_sentence, address, dimensions=kind == "dimensions-")
        yield "sentence" if kind else "page", f"page-{kind}minilm-sentence", draw
    yield "effects", "page-effects-smollm2-sentence", draw_effects
    yield "overlay", "overlay-vit-196", partial(draw_overlay, smooth=True)
    yield "overlay-patches", "overlay-patches-vit-196", partial(draw_overlay, smooth=False, head=1)


_SENTENCES = {
    "": "layer=5&head=11",
    "several-": "layer=5&head=mean",
    "heads-": "layer=5&head=11&view=heads",
    "dimensions-": "layer=5&head=11",
}
"""What to show of a sentence, by kind of picture."""


@torch.no_grad()
def draw_sentence(address: str = _SENTENCES[""], *, dimensions: bool = False) -> Screenshot:
    """Show where "it" looks in MiniLM, of which a head knows what it means."""
    model = AutoModel.from_pretrained(minilm()).eval()
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    sentence = "The animal didn't cross the street because it was too tired"
    ids = tokenizer(sentence)["input_ids"]
    with regard.watch(model) as seen:
        model(torch.tensor([ids]))
    tokens = tokenizer.convert_ids_to_tokens(ids)
    about = f"MiniLM-L6-v2 · {len(ids)} tokens"
    page = regard.page(seen, tokens, title=sentence, about=about, dimensions=dimensions)
    height = 1560 if dimensions else 800
    return Screenshot(page, f"{address}&token={tokens.index('it')}", height=height)


def draw_effects() -> Screenshot:
    """Show what looks of SmolLM2 do to its belief in Paris."""
    model = AutoModelForCausalLM.from_pretrained(smollm2()).eval().requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    text = "The Eiffel Tower is in France. The capital of France is"
    ids = tokenizer(text)["input_ids"]
    paris, rome = (
        tokenizer(x, add_special_tokens=False)["input_ids"][0] for x in (" Paris", " Rome")
    )
    with regard.watch(model, effects=True) as seen:
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        (logits[paris] - logits[rome]).backward()
    page = regard.page(
        seen,
        tokenizer.convert_ids_to_tokens(ids),
        title=text,
        about=f"SmolLM2-135M · {len(ids)} tokens",
        effect_on="the logit of “Paris” minus that of “Rome”",
    )
    return Screenshot(page)


def _drawn(draw: Draw, reading: Callable[[], Reading]) -> Any:
    return draw(reading())


def draw_overlay(*, smooth: bool, head: int | None = None) -> Any:
    seen, shown = read_vit()
    return overlay(seen[0], shown, smooth=smooth, head=head)


def save(figure: Any, path: Path) -> None:
    """Write a figure with 256 colours, and with as many dots as a repository can bear."""
    for dpi, colours in ((200, 256), (150, 256), (120, 256), (100, 128)):
        buffer = BytesIO()
        figure.savefig(buffer, dpi=dpi, format="png")
        with Image.open(buffer) as drawn:
            few = drawn.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
            few.save(path, optimize=True)
        if path.stat().st_size < LARGEST:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/gallery"), help="where to draw")
    parser.add_argument("--length", type=int, nargs="+", default=LENGTHS, help="of the texts")
    parser.add_argument("--only", nargs="+", default=(), help="names of figures, such as heatmap")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, file, draw in drawings(arguments.length):
        if arguments.only and name not in arguments.only:
            continue
        start = time.perf_counter()
        path = arguments.out / f"{file}.png"
        save(draw(), path)
        size = path.stat().st_size / 1000
        print(f"{path}  {size:.0f} kB  {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
