"""Write a call to disk, with its maps and summaries."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import zarr
from numpy.typing import NDArray
from torch import Tensor

from regard.calls.call import AttentionCall
from regard.calls.choose import one_sequence, sequence_of
from regard.calls.measures import measure_and
from regard.matrix import AttentionMatrix, EffectMatrix, Entropy, Pool, Received
from regard.matrix.effects import Effects
from regard.matrix.index import LazyTensor, as_tensor, read, take
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns.cover import Cover
from regard.recording import arrays
from regard.recording.arrays import ArraySpec
from regard.recording.bias_data import bias_as_data
from regard.recording.errors import RecordingError
from regard.recording.files import Files
from regard.recording.layout import EFFECT, MOST_PART, call_specs, stored_arrays
from regard.recording.pattern_data import arrays_named, pattern_as_data
from regard.recording.pyramid import Pyramid
from regard.recording.schema import (
    ATTRIBUTE,
    THUMB,
    CallFacts,
    cells_of,
    max_zoom,
    thumb_of,
)
from regard.recording.stored import CallArrays, covers

_COMPARED = 16
"""Number of rows of each head to compare with the watched weights."""


@torch.no_grad()
def write_call(
    call: AttentionCall,
    calls: zarr.Group,
    files: Files,
    batch: int | None,
    dtype: torch.dtype | None,
) -> CallArrays:
    """Write a call, unless it is already written.

    Args:
        call: the call.
        calls: the group of the calls.
        files: the files of the recording, to read what was written.
        batch: the sequence to record; needed if there are several.
        dtype: the dtype of stored queries and keys; None keeps it.

    Returns:
        The stored call. Its facts are written last and mark it as finished.
    """
    name = f"{call.index:04d}"
    matrix = one_sequence(call, batch)
    stored = _stored(call, matrix.view, dtype)
    facts = _facts(call, matrix.view, stored)
    specs = call_specs(facts)
    specs |= {part: ArraySpec.of_values(x) for part, x in stored.arrays if part not in specs}
    kept = stored_arrays(files, f"calls/{name}", specs)
    known = known_facts(calls, name)
    if known is not None and known.sha256 == facts.sha256 and known.module == facts.module:
        return CallArrays(known, kept)
    group = calls.create_group(name, overwrite=True)
    for part, values in stored.arrays:
        arrays.write(group, part, values, specs[part])
    facts = _summarize(CallArrays(facts, kept), group)
    recorded = CallArrays(facts, kept)
    if facts.effects is not None:
        measures = {**facts.measures, "effect": _summarize_effects(recorded, group)}
        cells = recorded.array(f"{EFFECT}/{facts.cells[-1]}").read()
        error = _error(recorded.call.effects[0], sequence_of(call.effects, batch))
        known = {"largest": float(np.abs(np.nan_to_num(cells)).max()), "error": error}
        effects = facts.effects.model_copy(update=known)
        facts = facts.model_copy(update={"effects": effects, "measures": measures})
    error = _error(recorded.call.matrix[0], matrix)
    facts = facts.model_copy(update={"error": error})
    group.attrs[ATTRIBUTE] = facts.model_dump(mode="json")
    return CallArrays(facts, kept)


def known_facts(calls: zarr.Group, name: str) -> CallFacts | None:
    """Return the facts of a finished call."""
    try:
        group = calls[name]
        return CallFacts.model_validate(group.attrs[ATTRIBUTE])
    except (KeyError, ValueError):
        return None


@dataclass
class _Stored:
    """The arrays and the JSON of a call."""

    arrays: list[tuple[str, NDArray[Any]]]
    data: dict[str, Any]


def _stored(call: AttentionCall, view: View, dtype: torch.dtype | None) -> _Stored:
    source = view.source
    if view.sizes[2:] != source.shape[2:]:
        raise ValueError(
            f"{call.module}: calls must be whole matrices, got a part of "
            f"{source.shape[2]} × {source.shape[3]}"
        )
    batch = view.batch[0]
    found: list[tuple[str, NDArray[Any]]] = []

    def store(tensor: Tensor) -> str:
        exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        found.append((f"part_{len(found)}", arrays.as_numpy(exact)))
        return found[-1][0]

    if isinstance(source, Scores):
        query, key = _queries_and_keys(call, view, source, dtype)
        found += [("query", arrays.as_numpy(query)), ("key", arrays.as_numpy(key))]
        bias, sinks = source.bias, source.sinks
        data: dict[str, Any] = {
            "stored": "scores",
            "dtype": _name(query.dtype),
            "key_heads": len(key),
            "key_dim": query.shape[-1],
            "scale": float(source.scale),
            "bias": None if bias is None else bias_as_data(bias, batch, store),
            "sinks": None if sinks is None else take(sinks, 0, view.heads).double().tolist(),
        }
    else:
        assert isinstance(source, Weights)
        weights = read(source.weights, view.batch, view.heads, view.queries, view.keys)[0]
        found.append(("weights", arrays.as_numpy(weights)))
        data = {
            "stored": "weights",
            "dtype": _name(weights.dtype),
            "key_heads": len(weights),
            "key_dim": 0,
            "scale": 1.0,
            "bias": None,
            "sinks": None,
        }
    data["effects"] = None
    if call.has_effects:
        value, gradient = _values_and_gradients(call, view)
        found += [("value", arrays.as_numpy(value)), ("gradient", arrays.as_numpy(gradient))]
        sizes = {"key_heads": len(value), "value_dim": value.shape[-1]}
        data["effects"] = {**sizes, "dtype": _name(value.dtype), "largest": 0.0, "error": 0.0}
    positions = source.positions(range(source.shape[2]))
    consecutive = bool((positions.diff() == 1).all())
    if not consecutive:
        found.append(("positions", arrays.as_numpy(positions.long())))
    data["first_position"] = int(positions[0]) if consecutive else None
    data["pattern"] = pattern_as_data(source.pattern, batch, store)
    _check_readable(call, found, data)
    return _Stored(found, data)


def _check_readable(
    call: AttentionCall, found: list[tuple[str, NDArray[Any]]], data: dict[str, Any]
) -> None:
    """Raise ValueError if a pattern or a bias is too large to be opened again."""
    try:
        for one in (data["pattern"], data["bias"]):
            arrays_named(one)
    except RecordingError as error:
        raise ValueError(f"{call.module}: {error}") from error
    size = sum(values.size for name, values in found if name.startswith("part_"))
    if size > MOST_PART:
        raise ValueError(
            f"{call.module}: pattern and bias must have at most {MOST_PART:,} numbers, got {size:,}"
        )


def _queries_and_keys(
    call: AttentionCall, view: View, source: Scores, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    query = read(source.query, view.batch, view.heads, view.queries)[0]
    if len(view.heads) != source.shape[1] and source.biased:
        raise ValueError(f"{call.module}: a call with a bias must have all its heads")
    key = _of_key_heads(source.key, view)
    if dtype is not None:
        query, key = query.to(dtype), key.to(dtype)
    return query, key


def _values_and_gradients(call: AttentionCall, view: View) -> tuple[Tensor, Tensor]:
    """Return values and gradients in their own dtype, as gradients may be too small for float16."""
    source = call.effects.view.source
    assert isinstance(source, Effects)
    gradient = read(source.gradient, view.batch, view.heads, view.queries)[0]
    value = _of_key_heads(source.value, view)
    dtype = torch.promote_types(value.dtype, gradient.dtype)
    return value.to(dtype), gradient.to(dtype)


def _of_key_heads(tensor: Tensor | LazyTensor, view: View) -> Tensor:
    """Return the keys or values of a view, repeated for each head if it has only some."""
    key_heads, heads = tensor.shape[1], view.source.shape[1]
    found = read(tensor, view.batch, range(key_heads), view.keys)[0]
    if len(view.heads) == heads:
        return found
    return found[as_tensor(view.heads).to(found.device) // (heads // key_heads)]


def _facts(call: AttentionCall, view: View, stored: _Stored) -> CallFacts:
    heads, queries, keys = view.sizes[1:]
    data = dict(stored.data)
    said = json.dumps(data, sort_keys=True).encode()
    sha256 = arrays.sha256_of(
        arrays.as_numpy(torch.frombuffer(bytearray(said), dtype=torch.uint8)),
        *(values for _, values in stored.arrays),
    )
    return CallFacts(
        index=call.index,
        module=call.module,
        looks=call.kind,
        layer=call.layer,
        group=call.group,
        heads=heads,
        queries=queries,
        keys=keys,
        query_text=call.query_text,
        key_text=call.key_text,
        cells=cells_of(max_zoom(queries, keys)),
        thumb=thumb_of(queries, keys),
        measures={},
        error=0.0,
        sha256=sha256,
        **data,
    )


def _summarize(call: CallArrays, group: zarr.Group) -> CallFacts:
    """Compute and write the maps and measures of a call, in one pass."""
    facts = call.facts
    live = AttentionCall.of(
        AttentionMatrix.of(View.whole(call.source(with_lse=False))), kind=facts.looks
    )
    measures, (_, entropy, received, thumbs) = measure_and(
        live, None, Pyramid(facts, live, group), Entropy(), Received(), Pool(THUMB)
    )
    if facts.stored == "scores":
        arrays.write(group, "lse", arrays.as_numpy(live.matrix.lse[0]), call.array("lse").spec)
    for name, values in (("entropy", entropy.nats), ("received", received.mean)):
        both = torch.cat([values, values.mean(dim=0, keepdim=True)]) if facts.heads > 1 else values
        arrays.write(group, name, arrays.as_numpy(both.float()), call.array(name).spec)
    height, width = thumbs.height, thumbs.width
    codes = covers(live, range(facts.queries), range(facts.keys), height, width)
    small = thumbs.cells.float().masked_fill(codes == Cover.NONE, torch.nan)
    arrays.write(group, "thumbs", arrays.as_numpy(small))
    told = {
        name: [float(x) if x == x else None for x in values.tolist()]
        for name, values in measures.items()
    }
    return facts.model_copy(update={"measures": told})


def _summarize_effects(call: CallArrays, group: zarr.Group) -> list[float]:
    """Compute and write the maps and sums of effects in one pass, and return those of heads."""
    facts = call.facts
    source = call.effects(call.source(), with_totals=False)
    live = AttentionCall.of(AttentionMatrix.of(View.whole(source.weights)), kind=facts.looks)
    maps = Pyramid(facts, live, group, (EFFECT,))
    EffectMatrix.of(View.whole(source)).summarize(maps, progress=False)
    totals = source.totals_of(range(1), range(facts.heads), range(facts.queries))[0]
    arrays.write(group, "totals", arrays.as_numpy(totals), call.array("totals").spec)
    return totals.double().sum(dim=1).tolist()


def _error(recorded: LazyMatrix, seen: LazyMatrix) -> float:
    """Return the largest error of recorded weights or effects, in some rows of each head."""
    queries = recorded.shape[1]
    rows = torch.linspace(0, queries - 1, min(_COMPARED, queries)).long().unique().tolist()
    found, live = (matrix.rows(rows).float().cpu() for matrix in (recorded, seen))
    return float((found - live).abs().nan_to_num().max())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).split(".")[-1]
