"""The query and key tokens of each call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.calls.call import AttentionCall, StackName, stack_of
from regard.calls.choose import one_sequence
from regard.calls.tokens import readable
from regard.matrix import AttentionMatrix
from regard.matrix.source import as_tensor

_SIDES: dict[StackName, tuple[int, int]] = {"encoder": (0, 0), "decoder": (1, 1), "cross": (1, 0)}
"""The texts of queries and keys of each stack of an encoder–decoder."""


@dataclass(frozen=True)
class Text:
    """A text.

    Attributes:
        name: its name on the page.
        pieces: its tokens as pieces of running text.
    """

    name: str
    pieces: list[str]


@dataclass(frozen=True)
class TextPart:
    """The query or key tokens of a call: those of a text, or a slice of it.

    Attributes:
        text: number of the text.
        name: their name on the page.
        pieces: the tokens as pieces of running text.
        positions: their positions in the text.
    """

    text: int
    name: str
    pieces: list[str]
    positions: list[int]


@dataclass(frozen=True)
class TextLayer:
    """A call of attention on the page.

    Attributes:
        call: the call.
        group: its stack, if the model has several.
        kind: "layer", "call" or "matrix"; "" for the only one of a page, if its module has no
            number.
        name: its number in the model, or in the stack if layer numbers are not unique.
        queries: its query tokens.
        keys: its key tokens.
    """

    call: AttentionCall
    group: str
    kind: str
    name: str
    queries: TextPart
    keys: TextPart

    @property
    def title(self) -> str:
        """Its title, such as "decoder layer 3"."""
        own = (self.kind, self.name) if self.kind else ("attention",)
        return " ".join(word for word in (self.group, *own) if word)


def texts_of(tokens: Sequence[str], source: Sequence[str] | None) -> list[Text]:
    """Return the texts of a page: one, or for an encoder–decoder two, the source first."""
    if source is None:
        return [Text("text", readable(tokens))]
    return [Text("source", readable(source)), Text("target", readable(tokens))]


def layers_of(
    calls: Sequence[AttentionCall], texts: Sequence[Text], batch: int | None
) -> list[TextLayer]:
    """Return each call with its query and key tokens.

    Raises:
        ValueError: there is no call, the number of tokens doesn't fit, or calls of one stack have
            different tokens.
    """
    if not calls:
        raise ValueError("there are no calls of attention to show")

    # 1. The tokens of each call.
    layers: list[TextLayer] = []
    for call in calls:
        group, *sides = _stack_and_texts(call, num_texts=len(texts))
        if call.index < 0:
            call = replace(call, kind="self" if len(texts) == 1 else "cross")
        queries, keys = _parts(call, one_sequence(call, batch), texts, *sides)
        layers.append(TextLayer(call, group, "layer", call.layer, queries, keys))
    _check_same_tokens(layers)

    # 2. Names: numbers of layers, if these tell all apart; otherwise calls of a stack are counted.
    names = {(layer.group, layer.name) for layer in layers}
    if len(names) == len(layers) and all(layer.name for layer in layers):
        return layers
    are_matrices = all(call.index < 0 for call in calls)
    kind = "" if len(layers) == 1 else "matrix" if are_matrices else "call"
    counts = {layer.group: 0 for layer in layers}
    for index, layer in enumerate(layers):
        layers[index] = replace(layer, kind=kind, name=str(counts[layer.group]))
        counts[layer.group] += 1
    return layers


def check_whole(layers: Sequence[TextLayer], texts: Sequence[Text]) -> None:
    """Raise ValueError unless queries and keys of each layer are whole texts."""
    for layer in layers:
        for axis, part in (("queries", layer.queries), ("keys", layer.keys)):
            if len(part.pieces) != len(texts[part.text].pieces):
                raise _length_error(layer.call, axis, texts[part.text], len(part.pieces))


def rows_as_text(
    layers: Sequence[TextLayer], texts: Sequence[Text]
) -> tuple[list[TextLayer], list[Text]]:
    """Make the queries a second text if they are only the last tokens of the text.

    So they are after a cached prefix, for which no queries are computed. Other layers and texts are
    returned as they are.
    """
    rows, size = layers[0].queries, len(texts[0].pieces)
    count = len(rows.pieces)
    if len(texts) > 1 or count == size or rows.positions != list(range(size - count, size)):
        return list(layers), list(texts)
    part = replace(rows, text=1, positions=list(range(count)))
    return [replace(layer, queries=part) for layer in layers], [
        *texts,
        Text(rows.name, rows.pieces),
    ]


def _stack_and_texts(call: AttentionCall, num_texts: int) -> tuple[str, int, int]:
    """Return the stack of a call and its two texts."""
    if num_texts == 1:
        if call.kind == "cross":
            raise ValueError(
                f"{call.module} is cross-attention: pass the tokens of its keys as source=, "
                "those of its queries as tokens"
            )
        return "", 0, 0
    if call.index < 0:
        return "", 1, 0
    stack = stack_of(call.module, call.kind)
    return stack, *_SIDES[stack]


def _parts(
    call: AttentionCall, matrix: AttentionMatrix, texts: Sequence[Text], queries: int, keys: int
) -> tuple[TextPart, TextPart]:
    """Return the tokens of the rows and of the columns of a matrix.

    Args:
        call: the call, for messages.
        matrix: its matrix, or a part of it.
        texts: the tokens of the texts, or of the slice.
        queries: number of the text of its queries.
        keys: number of the text of its keys.
    """
    view = matrix.view
    num_queries, num_keys = view.source.shape[2:]
    columns = as_tensor(view.keys).tolist()
    if queries != keys:
        rows = as_tensor(view.queries).tolist()
    else:
        # Queries have positions among the tokens of the keys.
        rows, num_queries = view.source.positions(view.queries).tolist(), num_keys
        if rows != columns and len(texts[keys].pieces) != num_keys:
            # The tokens of a slice can't be both its queries and its keys.
            fits = len(rows) == len(texts[keys].pieces)
            axis, size = ("keys", len(columns)) if fits else ("queries", len(rows))
            raise _length_error(call, axis, texts[keys], size, matrix)
        if rows and not 0 <= min(rows) <= max(rows) < num_keys:
            raise ValueError(
                f"{call.module} has queries at positions {min(rows)} to {max(rows)} of a text with "
                f"{num_keys} tokens: pass the tokens of the queries, and those of the keys as "
                "source="
            )

    return (
        _tokens_at(call, matrix, "queries", texts, queries, rows, num_queries),
        _tokens_at(call, matrix, "keys", texts, keys, columns, num_keys),
    )


def _tokens_at(
    call: AttentionCall,
    matrix: AttentionMatrix,
    axis: str,
    texts: Sequence[Text],
    number: int,
    positions: list[int],
    size: int,
) -> TextPart:
    """Return the tokens at some positions, given those tokens or the whole text."""
    text = texts[number]
    if len(text.pieces) not in (len(positions), size):
        raise _length_error(call, axis, text, len(positions), matrix)
    pieces = text.pieces
    if len(pieces) == size:
        pieces = [pieces[position] for position in positions]
    return TextPart(number, _name(text.name, positions, size), pieces, positions)


def _name(text: str, positions: list[int], size: int) -> str:
    """Return the name of the tokens at some positions of a text."""
    if positions == list(range(size)):
        return text
    if len(positions) == 1:
        return f"token {positions[0]}" if text == "text" else f"{text} token {positions[0]}"
    if positions and positions == list(range(positions[0], positions[-1] + 1)):
        return f"{text} {positions[0]}–{positions[-1]}"
    return f"part of {text}"


def _check_same_tokens(layers: Sequence[TextLayer]) -> None:
    """Raise ValueError unless all layers of a stack have the same tokens."""
    firsts: dict[str, TextLayer] = {}
    for number, layer in enumerate(layers):
        first = firsts.setdefault(layer.group, layer)
        if (first.queries, first.keys) != (layer.queries, layer.keys):
            raise ValueError(
                "the matrices of a page must have the same queries and keys, but those of number "
                f"{number} ({layer.call.module}) differ from the first: make a page of each"
            )


def _length_error(
    call: AttentionCall, axis: str, text: Text, size: int, matrix: AttentionMatrix | None = None
) -> ValueError:
    """Return the error that a text has another number of tokens than a call has."""
    hint = ""
    if matrix is not None and matrix.view.sizes[2:] != matrix.view.source.shape[2:]:
        hint = (
            "; for a slice, pass the tokens of the whole text, or those of its queries as tokens "
            "and those of its keys as source="
        )
    elif call.index < 0 and call.matrix.shape[-1] != call.matrix.shape[-2]:
        hint = "; for cross-attention, pass the tokens of the keys as source="
    elif axis == "queries" and size < len(text.pieces):
        hint = (
            "; join the steps of a generated text with seen.stitched(), and leave out its last "
            "token, which the model has not read"
        )
    return ValueError(
        f"{text.name} has {len(text.pieces)} tokens, but {call.module} has {size} {axis}: pass one "
        f"token for each, including special tokens and padding{hint}"
    )
