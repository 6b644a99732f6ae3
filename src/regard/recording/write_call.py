"""Write a call to disk, with its maps and summaries."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.call import LazyTensor
from regard.calls.call import AttentionCall
from regard.calls.choose import one_sequence, sequence_of
from regard.calls.measures import measure_and
from regard.distributed.head_shards import head_order
from regard.distributed.ranks import Ranks, check_same
from regard.matrix import AttentionMatrix, EffectMatrix, Entropy, Pool, Received
from regard.matrix.derived import Effects
from regard.matrix.lazy_matrix import LazyMatrix
from regard.matrix.scores import Scores
from regard.matrix.source import as_tensor, read, take
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns.integers import is_consecutive
from regard.patterns.pattern import Cover
from regard.recording import arrays
from regard.recording.arrays import ArraySpec
from regard.recording.bias_data import bias_as_data
from regard.recording.contents import is_complete, stored_attribute
from regard.recording.errors import RecordingError
from regard.recording.files import Files, Folder
from regard.recording.layout import EFFECT, MOST_PART, call_specs, is_map, stored_arrays
from regard.recording.pattern_data import UNKNOWN, arrays_named, pattern_as_data
from regard.recording.pyramid import Pyramid, write_mean_of_heads
from regard.recording.schema import ATTRIBUTE, THUMB, CallFacts, cells_of, max_zoom, thumb_of
from regard.recording.stored import CallArrays, covers

_COMPARED = 16
"""Number of rows of each head to compare with the watched weights."""

_BY_HEAD = ("query", "key", "weights")
"""Stored arrays with an axis of heads."""

_OF_EFFECTS = ("value", "gradient")
"""Stored arrays of effects, which one rank has for all heads."""


@torch.no_grad()
def write_call(
    call: AttentionCall,
    calls: zarr.Group,
    root: Path,
    batch: int | None,
    dtype: torch.dtype | None,
    ranks: Ranks,
) -> CallArrays:
    """Write a call, unless it is already written.

    Args:
        call: the call.
        calls: the group of the calls.
        root: the folder of the recording, to read what was written.
        batch: the sequence to record; needed if there are several.
        dtype: the dtype of stored queries and keys; None keeps it.
        ranks: the processes that have its heads.

    Returns:
        The stored call. Its facts are written last and mark it as finished.
    """
    name = f"{call.index:04d}"

    # 1. What each rank has, and what it is to write.
    def prepare() -> tuple[tuple[AttentionMatrix, EffectMatrix | None, _Stored], _Part]:
        matrix = one_sequence(call, batch)
        effects = sequence_of(call.effects, batch) if call.has_effects else None
        stored = _stored(call, matrix.view, dtype)
        by_rank = (*_BY_HEAD, *_OF_EFFECTS)
        shared = arrays.sha256_of(*(x for part, x in stored.arrays if part not in by_rank))
        facts = _facts(call, matrix.view, stored)
        part = _Part(call.head_numbers, call.num_all_heads, facts, shared)
        return (matrix, effects, stored), part

    (matrix, effects, stored), parts = ranks.share(prepare)
    shard = _joined(call, parts, ranks.rank)
    facts = shard.facts

    # 2. Rank 0 creates the arrays, unless the call is already written.
    specs = call_specs(facts)
    specs |= {part: ArraySpec.of_values(x) for part, x in stored.arrays if part not in specs}
    kept = stored_arrays(Files(Folder(root)), f"calls/{name}", specs)
    known = ranks.first(lambda: _begin(calls, root, name, facts, specs))
    if known is not None:
        return CallArrays(known, kept)

    # 3. Each rank writes its heads, and rank 0 what needs all.
    summaries = ranks.gather(
        lambda: _write_heads(CallArrays(facts, kept), calls, name, stored, matrix, effects, shard)
    )
    ordered = [one for one in map(summaries.__getitem__, shard.ranks) if one is not None]
    facts = ranks.first(lambda: _finish(CallArrays(facts, kept), calls, name, ordered))
    return CallArrays(facts, kept)


@dataclass(frozen=True)
class _Part:
    """The heads of a call that a rank has.

    Attributes:
        heads: their numbers.
        total: the number of heads of all ranks; None if this rank has them all.
        facts: the facts of a call of these heads only.
        shared: the SHA-256 of arrays that all ranks have, such as masks.
    """

    heads: range
    total: int | None
    facts: CallFacts
    shared: str


@dataclass(frozen=True)
class _Shard:
    """The heads of a call that a rank writes.

    Attributes:
        facts: the facts of the call.
        ranks: the ranks that write it, in the order of their heads.
        heads: the heads of this rank.
        key_heads: its key heads.
        is_first: whether it writes what all heads share.
    """

    facts: CallFacts
    ranks: list[int]
    heads: slice
    key_heads: slice
    is_first: bool


def _joined(call: AttentionCall, parts: list[_Part], rank: int) -> _Shard:
    """Return what a rank writes.

    Raises:
        ValueError: the parts are not those of one call.
    """
    ranks = [0]
    if any(part.total is not None for part in parts):
        ranks = head_order(call, [part.heads for part in parts], parts[0].total)
    written = [parts[rank].facts for rank in ranks]
    traits = [
        {
            **part.facts.model_dump(exclude={"heads", "key_heads", "sinks", "sha256"}),
            "heads for each key head": part.facts.heads // part.facts.key_heads,
            "presence of sinks": part.facts.sinks is not None,
            "number of heads of all ranks": part.total,
            "digest of mask, bias and positions": part.shared,
            # What every rank has, rank 0 writes.
            "digest": part.facts.sha256 if part.total is None else "",
        }
        for part in parts
    ]
    check_same([{f"{name} of {call}": value for name, value in of.items()} for of in traits])
    before, keys_before, heads, key_heads = 0, 0, slice(0, 0), slice(0, 0)
    for one, facts in zip(ranks, written, strict=True):
        if one == rank:
            heads = slice(before, before + facts.heads)
            key_heads = slice(keys_before, keys_before + facts.key_heads)
        before, keys_before = before + facts.heads, keys_before + facts.key_heads
    if len(written) == 1:
        return _Shard(written[0], ranks, heads, key_heads, rank == 0)
    sinks = [sink for facts in written for sink in facts.sinks or ()]
    digests = "".join(facts.sha256 for facts in written)
    whole = written[0].model_dump() | {
        "heads": before,
        "key_heads": keys_before,
        "sinks": sinks or None,
        "sha256": hashlib.sha256(digests.encode()).hexdigest(),
    }
    return _Shard(CallFacts.model_validate(whole), ranks, heads, key_heads, rank == ranks[0])


def _begin(
    calls: zarr.Group, root: Path, name: str, facts: CallFacts, specs: dict[str, ArraySpec]
) -> CallFacts | None:
    """Return the facts of a finished call, or create its arrays."""
    known = _known_facts(root, name)
    same = known is not None and _planned(known) == _planned(facts)
    if same and is_complete(root, f"calls/{name}", specs):
        return known
    group = calls.create_group(name, overwrite=True)
    for part, spec in specs.items():
        arrays.create(group, part, spec, sparse=is_map(part))
    return None


def _known_facts(root: Path, name: str) -> CallFacts | None:
    """Return the facts of a finished call."""
    try:
        return CallFacts.model_validate(stored_attribute(root, f"calls/{name}"))
    except ValueError:
        return None


def _planned(facts: CallFacts) -> CallFacts:
    """Return the facts that are known before a call is written."""
    effects = facts.effects and facts.effects.model_copy(update={"largest": 0.0, "error": 0.0})
    return facts.model_copy(update={"measures": {}, "error": 0.0, "effects": effects})


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
        bias, sinks = source.call.bias, source.call.sinks
        if call.num_all_heads is not None and bias is not None and bias.num_heads:
            raise ValueError(f"{call} has a bias for each head: save it on one process")
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
    positions = source.positions(range(source.shape[2]))
    consecutive = is_consecutive(positions)
    if not consecutive:
        found.append(("positions", arrays.as_numpy(positions.long())))
    data["first_position"] = int(positions[0]) if consecutive else None
    known = source.mask_known
    data["pattern"] = pattern_as_data(source.pattern, batch, store) if known else UNKNOWN
    data["effects"] = None
    if call.has_effects:
        if call.num_all_heads is not None:
            raise ValueError(f"{call} has effects of some heads only: save it without effects")
        value, gradient = _values_and_gradients(call, view)
        found += [("value", arrays.as_numpy(value)), ("gradient", arrays.as_numpy(gradient))]
        sizes = {"key_heads": len(value), "value_dim": value.shape[-1]}
        data["effects"] = {**sizes, "dtype": _name(value.dtype), "largest": 0.0, "error": 0.0}
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
    query = read(source.call.query, view.batch, view.heads, view.queries)[0]
    if len(view.heads) != source.shape[1] and source.biased:
        raise ValueError(f"{call.module}: a call with a bias must have all its heads")
    key = _of_key_heads(source.call.key, view)
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


@dataclass(frozen=True)
class _Summary:
    """Summaries of the heads of a rank.

    Attributes:
        measures: a number for each head.
        thumbs: the thumbnails.
        sums: the sum over these heads of each array of lines, by name.
        error: the largest error of recorded weights.
        effects: the largest effect of a map and the largest error of effects, by name.
    """

    measures: dict[str, list[float | None]]
    thumbs: NDArray[Any]
    sums: dict[str, NDArray[Any]]
    error: float = 0.0
    effects: dict[str, float] = field(default_factory=dict[str, float])


def _write_heads(
    call: CallArrays,
    calls: zarr.Group,
    name: str,
    stored: _Stored,
    seen: AttentionMatrix,
    seen_effects: EffectMatrix | None,
    shard: _Shard,
) -> _Summary | None:
    """Write the heads of this rank, with their maps; return None if it has none to write."""
    heads = shard.heads
    if heads.stop == heads.start:
        return None
    group = calls[name]
    assert isinstance(group, zarr.Group)
    for part, values in stored.arrays:
        if part in _BY_HEAD:
            arrays.created(group, part)[shard.key_heads if part == "key" else heads] = values
        elif shard.is_first and values.size:
            arrays.created(group, part)[...] = values
    summary = _summarize(call, group, heads)
    if seen_effects is not None:
        summary = _with_effects(summary, call, group, seen_effects)
    return replace(summary, error=_error(call.call.matrix[0, heads], seen))


def _summarize(call: CallArrays, group: zarr.Group, heads: slice) -> _Summary:
    """Compute and write the maps and measures of some heads of a call, in one pass."""
    facts = call.facts
    matrix = AttentionMatrix.of(View.whole(call.source(with_lse=False)))[:, heads]
    live = AttentionCall.of(matrix, kind=facts.looks)
    # A mean over the queries that may attend to a key, which a mask tells.
    counts = [Received()] if facts.mask_known else []
    measures, (_, entropy, thumbs, *received) = measure_and(
        live,
        None,
        Pyramid(facts, live, group, first_head=heads.start),
        Entropy(),
        Pool(THUMB),
        *counts,
    )
    unknown = torch.full((heads.stop - heads.start, facts.keys), torch.nan)
    if facts.stored == "scores":
        arrays.created(group, "lse")[heads] = arrays.as_numpy(live.matrix.lse[0])
    sums: dict[str, NDArray[Any]] = {}
    lines = {"entropy": entropy.nats, "received": received[0].mean if received else unknown}
    for name, values in lines.items():
        arrays.created(group, name)[heads] = arrays.as_numpy(values.float())
        sums[name] = arrays.as_numpy(values.double().sum(dim=0))
    height, width = thumbs.height, thumbs.width
    codes = covers(live, range(facts.queries), range(facts.keys), height, width)
    small = thumbs.cells.float().masked_fill(codes == Cover.NONE, torch.nan)
    told = {
        name: [float(x) if x == x else None for x in values.tolist()]
        for name, values in measures.items()
    }
    return _Summary(told, arrays.as_numpy(small), sums)


def _finish(
    call: CallArrays, calls: zarr.Group, name: str, summaries: Sequence[_Summary]
) -> CallFacts:
    """Write what needs all heads: means and thumbnails, and at last the facts."""
    facts, group = call.facts, calls[name]
    assert isinstance(group, zarr.Group)
    arrays.created(group, "thumbs")[...] = np.concatenate([one.thumbs for one in summaries])
    if facts.heads > 1:
        for line in summaries[0].sums:
            mean = sum(one.sums[line] for one in summaries) / facts.heads
            arrays.created(group, line)[facts.heads] = mean
    if len(summaries) > 1:
        write_mean_of_heads(call, group)
    measures = {
        measure: [value for one in summaries for value in one.measures[measure]]
        for measure in summaries[0].measures
    }
    error = max(one.error for one in summaries)
    facts = facts.model_copy(update={"measures": measures, "error": error})
    if facts.effects is not None:
        effects = facts.effects.model_copy(update=summaries[0].effects)
        facts = facts.model_copy(update={"effects": effects})
    group.attrs[ATTRIBUTE] = facts.model_dump(mode="json")
    return facts


def _with_effects(
    summary: _Summary, call: CallArrays, group: zarr.Group, seen: EffectMatrix
) -> _Summary:
    """Write the maps of effects, and add what is known of them to a summary."""
    totals = _summarize_effects(call, group)
    cells = call.array(f"{EFFECT}/{call.facts.cells[-1]}").read()
    largest = float(np.abs(np.nan_to_num(cells)).max())
    known = {"largest": largest, "error": _error(call.call.effects[0], seen)}
    return replace(summary, measures={**summary.measures, "effect": totals}, effects=known)


def _summarize_effects(call: CallArrays, group: zarr.Group) -> list[float | None]:
    """Compute and write the maps and sums of effects in one pass, and return those of heads."""
    facts = call.facts
    source = call.effects(call.source(), with_totals=False)
    live = AttentionCall.of(AttentionMatrix.of(View.whole(source.weights)), kind=facts.looks)
    maps = Pyramid(facts, live, group, (EFFECT,))
    EffectMatrix.of(View.whole(source)).summarize(maps, progress=False)
    totals = source.totals_of(range(1), range(facts.heads), range(facts.queries))[0]
    arrays.created(group, "totals")[...] = arrays.as_numpy(totals)
    return totals.double().sum(dim=1).tolist()


def _error(recorded: LazyMatrix, seen: LazyMatrix) -> float:
    """Return the largest error of recorded weights or effects, in some rows of each head."""
    queries = recorded.shape[1]
    rows = torch.linspace(0, queries - 1, min(_COMPARED, queries)).long().unique().tolist()
    found, live = (matrix.rows(rows).float().cpu() for matrix in (recorded, seen))
    return float((found - live).abs().nan_to_num().max())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).split(".")[-1]
