"""One call of attention, written to disk with its maps and summaries."""

import json
from dataclasses import dataclass
from typing import Any

import torch
import zarr
from torch import Tensor

from regard.matrix import AttentionMatrix, Entropy, Pool, Received
from regard.matrix.index import as_tensor, take
from regard.matrix.scores import Scores
from regard.matrix.weights import Weights
from regard.patterns.cover import Cover
from regard.recording import arrays
from regard.recording.bias_data import bias_as_data
from regard.recording.pattern_data import pattern_as_data
from regard.recording.pyramid import Pyramid, cells_of
from regard.recording.recorded_call import RecordedCall
from regard.recording.rectangle import covers, rectangle
from regard.recording.schema import TILE, CallFacts, max_zoom
from regard.views.measures import measure_and

ATTRIBUTE = "regard"
_THUMB = 32
_COMPARED = 16
"""So many rows of each head are compared with those that were seen."""


@dataclass(frozen=True)
class Given:
    """What is to be recorded of a call.

    Attributes:
        matrix: its matrix, of one sequence, [heads, queries, keys].
        index: its number in the recording.
        module: the path of the module that made it.
        looks: whether it looked at its own text or at another.
        layer: the number of its layer.
        group: the stack that it belongs to.
        query_text: the number of the text that it looks from.
        key_text: the number of the text that it looks at.
        dtype: the type to store queries and keys in; None keeps it.
    """

    matrix: AttentionMatrix
    index: int
    module: str
    looks: Any
    layer: str
    group: str
    query_text: int
    key_text: int
    dtype: torch.dtype | None


@torch.no_grad()
def write_call(given: Given, calls: zarr.Group) -> CallFacts:
    """Write a call, unless the very same one is there already.

    Returns:
        What the recording says of it. It is written last: a call without it is not finished.
    """
    name = f"{given.index:04d}"
    stored = _stored(given)
    facts = _facts(given, stored)
    known = known_facts(calls, name)
    if known is not None and known.sha256 == facts.sha256 and known.module == facts.module:
        return known
    group = calls.create_group(name, overwrite=True)
    for part, values, chunks in stored.arrays:
        arrays.write(group, part, values, chunks)
    call = RecordedCall(facts, group)
    facts = _summarize(call, group)
    call = RecordedCall(facts, group)
    facts = facts.model_copy(update={"error": _error(call, given.matrix)})
    group.attrs[ATTRIBUTE] = facts.model_dump(mode="json")
    return facts


def known_facts(calls: zarr.Group, name: str) -> CallFacts | None:
    """Return what was written of a call, if it was finished."""
    try:
        group = calls[name]
        return CallFacts.model_validate(group.attrs[ATTRIBUTE])
    except (KeyError, ValueError):
        return None


@dataclass
class _Stored:
    """What is stored of a call: arrays with their chunks, and what JSON can hold."""

    arrays: list[tuple[str, Any, tuple[int, ...] | None]]
    data: dict[str, Any]


def _stored(given: Given) -> _Stored:
    view = given.matrix.view
    source = view.source
    if view.sizes[2:] != source.shape[2:]:
        raise ValueError(
            f"{given.module}: a recording holds whole matrices, and this one is a part of "
            f"{source.shape[2]} × {source.shape[3]}"
        )
    batch, chunks = view.batch[0], (1, TILE, TILE)
    found: list[tuple[str, Any, tuple[int, ...] | None]] = []

    def store(tensor: Tensor) -> str:
        exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        found.append((f"part_{len(found)}", arrays.as_numpy(exact), None))
        return found[-1][0]

    if isinstance(source, Scores):
        query, key = _queries_and_keys(given, source)
        rows = (1, arrays.ROWS, query.shape[-1])
        found += [("query", arrays.as_numpy(query), rows), ("key", arrays.as_numpy(key), rows)]
        bias, sinks = source.call.bias, source.sinks
        data: dict[str, Any] = {
            "stored": "scores",
            "dtype": _name(query.dtype),
            "key_heads": len(key),
            "key_dim": query.shape[-1],
            "scale": float(source.call.scale),
            "bias": None if bias is None else bias_as_data(bias, batch, store),
            "sinks": None if sinks is None else take(sinks, 0, view.heads).double().tolist(),
        }
    else:
        assert isinstance(source, Weights)
        weights = take(source.weights[batch], 0, view.heads)
        found.append(("weights", arrays.as_numpy(weights), chunks))
        data = {
            "stored": "weights",
            "dtype": _name(weights.dtype),
            "key_heads": len(weights),
            "key_dim": 0,
            "scale": 1.0,
            "bias": None,
            "sinks": None,
        }
    positions = source.positions(range(source.shape[2]))
    consecutive = bool((positions.diff() == 1).all())
    if not consecutive:
        found.append(("positions", arrays.as_numpy(positions.long()), None))
    data["first_position"] = int(positions[0]) if consecutive else None
    data["pattern"] = pattern_as_data(source.pattern, batch, store)
    return _Stored(found, data)


def _queries_and_keys(given: Given, source: Scores) -> tuple[Tensor, Tensor]:
    view, call = given.matrix.view, source.call
    batch = view.batch[0]
    query, key = take(call.query[batch], 0, view.heads), call.key[batch]
    if len(view.heads) != call.num_heads:
        if call.bias is not None:
            raise ValueError(f"{given.module}: a call with a bias is recorded with all its heads")
        # Some heads only: each with keys of its own.
        key = key[as_tensor(view.heads).to(key.device) // call.group]
    if given.dtype is not None:
        query, key = query.to(given.dtype), key.to(given.dtype)
    return query, key


def _facts(given: Given, stored: _Stored) -> CallFacts:
    heads, queries, keys = given.matrix.view.sizes[1:]
    data = dict(stored.data)
    said = json.dumps(data, sort_keys=True).encode()
    sha256 = arrays.digest_of(
        arrays.as_numpy(torch.frombuffer(bytearray(said), dtype=torch.uint8)),
        *(values for _, values, _ in stored.arrays),
    )
    thumb = tuple(-(-size // -(-size // _THUMB)) for size in (queries, keys))
    return CallFacts(
        index=given.index,
        module=given.module,
        looks=given.looks,
        layer=given.layer,
        group=given.group,
        heads=heads,
        queries=queries,
        keys=keys,
        query_text=given.query_text,
        key_text=given.key_text,
        cells=cells_of(max_zoom(queries, keys)),
        thumb=(thumb[0], thumb[1]),
        measures={},
        error=0.0,
        sha256=sha256,
        **data,
    )


def _summarize(call: RecordedCall, group: zarr.Group) -> CallFacts:
    """Compute and write what is summed up of a call, in one pass over what was written of it."""
    matrix = call.matrix_with(None)
    live = _Live(matrix[0], call.looks)
    pyramid = Pyramid(call, group)
    measures, (_, entropy, received, thumbs) = measure_and(
        live, None, pyramid, Entropy(), Received(), Pool(_THUMB)
    )
    if call.facts.stored == "scores":
        arrays.write(group, "lse", arrays.as_numpy(matrix.lse[0]), (1, 65536))
    for name, values in (("entropy", entropy.nats), ("received", received.mean)):
        both = torch.cat([values, values.mean(dim=0, keepdim=True)]) if call.heads > 1 else values
        arrays.write(group, name, arrays.as_numpy(both.float()), (1, 65536))
    height, width = thumbs.height, thumbs.width
    codes = covers(call, range(call.queries), range(call.keys), height, width)
    small = thumbs.cells.float().masked_fill(codes == Cover.NONE, torch.nan)
    arrays.write(group, "thumbs", arrays.as_numpy(small))
    told = {
        name: [float(x) if x == x else None for x in values.tolist()]
        for name, values in measures.items()
    }
    return call.facts.model_copy(update={"measures": told})


@dataclass
class _Live:
    """A matrix, and whether it looks at its own text; see `Watched`."""

    matrix: AttentionMatrix
    looks: str
    module: str = ""


def _error(call: RecordedCall, seen: AttentionMatrix) -> float:
    """Return how far recorded weights are from those that were seen, in some rows of each head."""
    count = min(_COMPARED, call.queries)
    rows = torch.linspace(0, call.queries - 1, count).long().unique().tolist()
    live = seen.rows(rows).float().cpu()
    largest = 0.0
    for head in range(call.heads):
        for place, row in enumerate(rows):
            found = rectangle(call, range(head, head + 1), range(row, row + 1), range(call.keys))[0]
            largest = max(largest, float((found - live[head, place]).abs().nan_to_num().max()))
    return largest


def _name(dtype: torch.dtype) -> str:
    return str(dtype).split(".")[-1]
