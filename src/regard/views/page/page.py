"""`page`: an interactive HTML file of a model's attention over a text."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from regard.calls.call import AttentionCall
from regard.calls.choose import listed, one_sequence, sequence_of
from regard.calls.first_pair import first_pairs, reason
from regard.calls.measures import MEASURES, Measure
from regard.calls.texts import TextLayer, TextPart, layers_of, texts_of
from regard.errors import check_positive
from regard.matrix import AttentionMatrix
from regard.matrix.lazy_matrix import LazyMatrix
from regard.views.diverging import DARK, LIGHT
from regard.views.explain.explanation import Explanation
from regard.views.page.checking import check_edges, check_maps, check_weights
from regard.views.page.document import Page, document
from regard.views.page.effects import effects_of, first_effects
from regard.views.page.encoding import MOST_TOKENS, edges, effect_maps, maps, packed
from regard.views.page.strongest import LayerContent, Strongest, contents_of
from regard.views.page.vectors import Vectors, vectors_of

_FLOORS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_MAP_SIZE = 64
_EXACT_TOKENS = 512
"""Weights have 16 bits up to this length, 8 beyond."""
_EFFECT = {
    "effect": Measure("effect", "", "what the target would lose without the head, by its gradient")
}


def page(
    calls: Sequence[AttentionCall | AttentionMatrix] | AttentionCall | AttentionMatrix,
    tokens: Sequence[str],
    *,
    source: Sequence[str] | None = None,
    batch: int | None = None,
    title: str = "Attention",
    about: str = "",
    effect_on: str | None = None,
    dimensions: bool = False,
    sentence_b_start: int | None = None,
    keep: int = 16,
    limit: int = 28_000_000,
    explanation: Explanation | None = None,
    progress: bool | None = None,
) -> Page:
    """Make an interactive page of a model's attention, as one HTML file.

        with regard.watch(model) as seen:
            model(**inputs)
        regard.page(seen, tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])).save("it.html")

    Point at a token to see its strongest keys and queries in every head, and in means over heads
    and layers. The page is self-contained. It holds the strongest keys of each query and a small
    map of each head, so it stays small for thousands of tokens. A notebook displays it.

    With `effect_on`, it shows effects instead of weights: blue where a look supports the target,
    orange where it opposes it.

        with regard.watch(model, effects=True) as seen:
            logits = model(**inputs).logits[0, -1]
            (logits[paris] - logits[rome]).backward()
        regard.page(seen, tokens, effect_on="logit of Paris minus Rome")

    A slice such as `A[0, 3, :4, 4:]` keeps its positions and head numbers.

    Before it is returned, the page is decoded and compared with the matrices.

    Args:
        calls: watched calls, or matrices, all with the same queries and keys.
        tokens: the tokens of the text, from its tokenizer; for an encoder–decoder those of the
            decoder; for a slice those of the whole text or of the slice.
        source: the tokens of the encoder of an encoder–decoder, or of the keys of a matrix.
        batch: which sequence, if there are several.
        title: the title of the page.
        about: a line below the title.
        effect_on: the name of the target; needs calls watched with `effects=True`.
        dimensions: whether to add queries and keys, so that the page shows what each dimension adds
            to a score.
        sentence_b_start: index of the first token of the second of two sentences; the page can then
            show only looks from one to the other, or within one.
        keep: how many of the strongest keys of each query are kept.
        limit: approximate largest size of the file in bytes. Beyond it, the weakest edges are left
            out, and the page says so.
        explanation: the steps for one query, shown below; see `regard.views.explain`.
        progress: whether to show a progress bar; by default as in `AttentionMatrix.summarize`.

    Raises:
        TypeError: tokens is not a list of strings.
        ValueError: the number of tokens doesn't fit, there are several sequences and `batch` is
            None, weights are above 1, there are no effects, or queries and keys are too large.
        RuntimeError: the page differs from the matrices.

    >>> import torch, regard
    >>> x = torch.randn(1, 4, 3, 8)
    >>> regard.page(regard.AttentionMatrix(x, x), ["an", "apple", "tree"])  # doctest: +ELLIPSIS
    Page('Attention': 1 layer, 3 tokens, ...)
    """
    check_positive(keep=keep, limit=limit)
    if sentence_b_start is not None and not 0 < sentence_b_start < len(tokens):
        raise ValueError(
            f"sentence_b_start must be from 1 to {len(tokens) - 1}, got {sentence_b_start}"
        )
    layers = layers_of(listed(calls), texts_of(tokens, source), batch)
    parts = [part for layer in layers for part in (layer.queries, layer.keys)]
    if sentence_b_start is not None and any(part.pieces != parts[0].pieces for part in parts):
        raise ValueError(
            "sentence_b_start needs one text, and all of its tokens as queries and keys"
        )
    longest = max(len(part.pieces) for part in parts)
    if longest > MOST_TOKENS:
        raise ValueError(f"a page shows up to {MOST_TOKENS:,} tokens, got {longest:,}")
    vectors = vectors_of(layers, batch, limit) if dimensions else None
    count = min(keep, 255)
    compute = contents_of if effect_on is None else effects_of
    stacks = _stacks(layers)
    contents: dict[int, LayerContent] = {}
    means: dict[int, Strongest] = {}
    averages: list[Strongest] = []
    for numbers in stacks:
        some = [layers[number] for number in numbers]
        stack = compute(some, batch, count=count, map_size=_MAP_SIZE, progress=progress)
        contents.update(zip(numbers, stack.layers, strict=True))
        means.update(zip(numbers, stack.means, strict=True))
        averages.append(stack.average)
        check_weights(
            [_shown_matrix(layer, batch, effect_on) for layer in some],
            [(one.strongest, mean) for one, mean in zip(stack.layers, stack.means, strict=True)],
            stack.average,
            [layer.title for layer in some],
        )
    found = [contents[number] for number in range(len(layers))]
    # Somebody chose the token that is explained.
    first = (
        [
            {
                "layer": one.layer,
                "head": one.head,
                "token": one.query,
                "why": reason(one, layers) if explanation is None else "",
            }
            for one in first_pairs(layers, batch)
        ]
        if effect_on is None
        else first_effects(layers, found)
    )
    shown = Shown(layers, stacks, found, means, averages, count, first, effect_on, vectors)
    steps = None if explanation is None else explanation.as_data()
    words = {
        "title": title,
        "about": about,
        "explanation": steps,
        "sentence_b_start": sentence_b_start,
    }
    return composed(shown, words, limit)


@dataclass(frozen=True)
class Shown:
    """The content of a page.

    Attributes:
        layers: the layers.
        stacks: the indices of the layers of each stack.
        found: the content of each layer.
        means: the strongest keys in the mean over the heads of each layer, by its index.
        averages: the same over all layers of each stack.
        kept: number of keys kept per query.
        first: layer, head and token to show first, and why, for each text of queries.
        effect_on: the target of effects; None for weights.
        vectors: the queries and keys of each layer, if wanted.
    """

    layers: Sequence[TextLayer]
    stacks: Sequence[Sequence[int]]
    found: Sequence[LayerContent]
    means: Mapping[int, Strongest]
    averages: Sequence[Strongest]
    kept: int
    first: Sequence[Mapping[str, int | str]]
    effect_on: str | None = None
    vectors: Sequence[Vectors] | None = None

    @property
    def parts(self) -> list[TextPart]:
        """The distinct texts of queries and keys, or slices of them."""
        parts: list[TextPart] = []
        for part in (part for layer in self.layers for part in (layer.queries, layer.keys)):
            if part not in parts:
                parts.append(part)
        return sorted(parts, key=lambda part: part.text)

    @property
    def largest(self) -> float | None:
        """The largest effect by size; None for weights."""
        if self.effect_on is None:
            return None
        parts = [one.strongest for one in self.found] + [*self.means.values(), *self.averages]
        return max(float(part.weights.abs().nan_to_num().max()) for part in parts) or 1.0


def composed(shown: Shown, words: Mapping[str, Any], limit: int) -> Page:
    """Compose a page.

    Args:
        shown: its content.
        words: title, line below it, explanation and the start of a second sentence.
        limit: approximate largest size in bytes.
    """
    longest = max(len(part.pieces) for part in shown.parts)
    largest = shown.largest
    weight_bits = 8 if largest is None and longest > _EXACT_TOKENS else 16
    sections = [[one.strongest, shown.means[number]] for number, one in enumerate(shown.found)]
    averages = [[one] for one in shown.averages]
    write = partial(edges, weight_bits=weight_bits, largest=largest)
    floor = _floor([*sections, *averages], write, limit, largest or 1.0)
    write = partial(write, floor=floor)
    check = partial(check_edges, floor=floor, weight_bits=weight_bits, largest=largest)
    blobs: dict[str, str] = {}
    # The maps of a short text are its edges.
    if floor > 0.0 or longest > min(_MAP_SIZE, shown.kept):
        encoded = maps if largest is None else effect_maps
        every_map = encoded([one.maps for one in shown.found])
        blobs["maps"] = packed(every_map)
        check_maps(blobs["maps"], every_map)
    for number, (layer, group) in enumerate(zip(shown.layers, sections, strict=True)):
        blob = blobs[f"edges-{number}"] = packed(write(group))
        check(blob, group, layer, layer.title)
    titles = [_title([shown.layers[number] for number in numbers]) for numbers in shown.stacks]
    for number, (numbers, group) in enumerate(zip(shown.stacks, averages, strict=True)):
        blob = blobs[f"average-{number}"] = packed(write(group))
        check(blob, group, shown.layers[numbers[0]], titles[number])
    for number, vectors in enumerate(shown.vectors or ()):
        blobs[f"vectors-{number}"] = vectors.as_text()
    facts = {
        "version": 4,
        **words,
        "effect_on": shown.effect_on,
        "largest": largest,
        "diverging": {"light": LIGHT, "dark": DARK},
        "texts": [_text(part) for part in shown.parts],
        "layers": [
            {**_sides(shown, layer), **_described(layer, found)}
            for layer, found in zip(shown.layers, shown.found, strict=True)
        ],
        "averages": [
            {**_sides(shown, shown.layers[numbers[0]]), "title": title, "layers": list(numbers)}
            for numbers, title in zip(shown.stacks, titles, strict=True)
        ],
        "vectors": [one.as_data() for one in shown.vectors or ()],
        "measures": [
            {"id": name, "name": one.name, "unit": one.unit, "about": one.about, "high": high}
            for name, one in (MEASURES if largest is None else _EFFECT).items()
            if (high := _highest(shown.found, name)) is not None
        ],
        "map_size": _MAP_SIZE,
        "weight_bits": weight_bits,
        "kept": shown.kept,
        "floor": floor,
        "first": shown.first,
    }
    return document(facts, blobs)


def _shown_matrix(layer: TextLayer, batch: int | None, effect_on: str | None) -> LazyMatrix:
    """Return the weights of a layer, or its effects."""
    if effect_on is None:
        return one_sequence(layer.call, batch)
    return sequence_of(layer.call.effects, batch)


def _stacks(layers: Sequence[TextLayer]) -> list[list[int]]:
    """Return the indices of the layers of each stack."""
    stacks: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        stacks.setdefault(layer.group, []).append(number)
    return list(stacks.values())


def _floor(
    sections: Sequence[Sequence[Strongest]], write: Callable[..., bytes], limit: int, largest: float
) -> float:
    """Return the smallest weight to store so that a page stays within a limit."""
    # Estimated from a few layers.
    every = max(1, len(sections) // 6)
    some = [section for section in sections[::every] if section]
    floors = [largest * floor for floor in _FLOORS]
    for floor in floors:
        written = [write(section, floor=floor) for section in some]
        if sum(map(len, written)) * every < limit / 2:
            return floor
        if sum(len(packed(one)) for one in written) * len(sections) / len(some) < 0.95 * limit:
            return floor
    return floors[-1]


def _text(part: TextPart) -> Mapping[str, Any]:
    counted = part.positions == list(range(len(part.positions)))
    return {
        "name": part.name,
        "pieces": part.pieces,
        "positions": None if counted else part.positions,
    }


def _described(layer: TextLayer, found: LayerContent) -> Mapping[str, Any]:
    measures = {
        name: [float(f"{value:.4g}") if math.isfinite(value) else None for value in values.tolist()]
        for name, values in found.measures.items()
    }
    return {
        "module": "" if layer.call.index < 0 else layer.call.module,
        "name": layer.name if layer.kind else "",
        "title": layer.title,
        "looks": layer.call.kind,
        "heads": list(layer.call.matrix.view.heads),
        "measures": measures,
    }


def _sides(shown: Shown, layer: TextLayer) -> dict[str, Any]:
    queries, keys = (shown.parts.index(part) for part in (layer.queries, layer.keys))
    return {"group": layer.group, "queries": queries, "keys": keys}


def _title(layers: Sequence[TextLayer]) -> str:
    """Return the common title of the layers of a stack."""
    first = layers[0]
    if len(layers) == 1:
        return first.title
    several = {"layer": "layers", "call": "calls", "matrix": "matrices"}[first.kind]
    words = ("all", str(len(layers)), first.group, several)
    return " ".join(word for word in words if word)


def _highest(found: Sequence[LayerContent], name: str) -> float | None:
    values = [abs(x) for one in found for x in one.measures[name].tolist() if math.isfinite(x)]
    return max(values, default=None)
