"""Which text each call of attention looks from, and which at."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.views.pieces import readable
from regard.views.watched import Stack, Watched, layer_of, one_sequence, stack_of

_SIDES: dict[Stack, tuple[int, int]] = {"encoder": (0, 0), "decoder": (1, 1), "cross": (1, 0)}
"""Which text each stack of an encoder–decoder looks from, and which at."""


@dataclass(frozen=True)
class Text:
    """A text that attention looks at.

    Attributes:
        name: what it is called on the page.
        pieces: its tokens as pieces of running text.
    """

    name: str
    pieces: list[str]


@dataclass(frozen=True)
class Layer:
    """A call of attention on the page.

    Attributes:
        call: the call.
        group: the stack that it belongs to, where a model has several.
        name: its number in the model, or in the stack where that does not tell layers apart.
        queries: the number of the text that it looks from.
        keys: the number of the text that it looks at.
    """

    call: Watched
    group: str
    name: str
    queries: int
    keys: int


def texts_of(tokens: Sequence[str], source: Sequence[str] | None) -> list[Text]:
    """Return the texts of a page: one, or for an encoder–decoder two, the source first."""
    if source is None:
        return [Text("text", readable(tokens))]
    return [Text("source", readable(source)), Text("target", readable(tokens))]


def layers_of(calls: Sequence[Watched], texts: Sequence[Text], batch: int | None) -> list[Layer]:
    """Say of each call which text it looks from, and which at.

    Raises:
        ValueError: no call, or a text has another number of tokens than a call has.
    """
    if not calls:
        raise ValueError("there is no call of attention to show")
    layers: list[Layer] = []
    for call in calls:
        group, queries, keys = _placed(call, num_texts=len(texts))
        shape = one_sequence(call, batch).shape[-2:]
        for what, text, size in zip(("queries", "keys"), (queries, keys), shape, strict=True):
            _check_length(call, what, texts[text], size)
        layers.append(Layer(call, group, layer_of(call), queries, keys))
    told_apart = {(layer.group, layer.name) for layer in layers}
    if len(told_apart) == len(layers) and all(layer.name for layer in layers):
        return layers
    counted = {layer.group: 0 for layer in layers}
    for place, layer in enumerate(layers):
        layers[place] = replace(layer, name=str(counted[layer.group]))
        counted[layer.group] += 1
    return layers


def _placed(call: Watched, num_texts: int) -> tuple[str, int, int]:
    """Return the stack of a call and its two texts."""
    if num_texts == 1:
        if call.looks == "cross":
            raise ValueError(
                f"{call.module} looks at another text: pass its tokens as source=, those of the "
                "text that looks as tokens"
            )
        return "", 0, 0
    stack = stack_of(call.module, call.looks)
    return stack, *_SIDES[stack]


def _check_length(call: Watched, what: str, text: Text, size: int) -> None:
    if len(text.pieces) == size:
        return
    hint = ""
    if what == "queries" and size < len(text.pieces):
        hint = (
            "; calls of a text that was generated step by step are joined by seen.stitched(), and "
            "the last token that was generated has not been fed to the model"
        )
    raise ValueError(
        f"{text.name} has {len(text.pieces)} tokens, and {call.module} has {size} {what}: pass one "
        f"token for each, special tokens and padding included{hint}"
    )
