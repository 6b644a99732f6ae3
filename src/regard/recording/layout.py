"""The arrays of a recording: names, shapes and dtypes, for writing and for validation."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from regard.matrix.arithmetic import How
from regard.recording.arrays import LINE, ROWS, ArraySpec, StoredArray, stored_dtype
from regard.recording.errors import RecordingError
from regard.recording.files import Files
from regard.recording.pattern_data import arrays_named
from regard.recording.schema import MOST_BYTES, TILE, CallFacts, EffectFacts, Facts, TextFacts

POOLS = ("mean", "max")
"""What a cell of a map of weights is."""

EFFECT = "effect"
"""The maps of effects: a cell has the largest by absolute value, with its sign."""

HOW: dict[str, How] = {"mean": "sum", "max": "max", EFFECT: "signed max"}
"""How the numbers of a cell are joined, by pool; a mean is a sum until it is written."""

MOST_PART = 2**28
"""Maximum numbers in the arrays of a call's pattern and bias."""


Specs = dict[str, dict[str, ArraySpec]]
"""The arrays of a recording by folder, such as "calls/0000", and by name."""


def recording_specs(metadata: Mapping[str, Any], facts: Facts, calls: Sequence[CallFacts]) -> Specs:
    """Return the arrays of a recording, which are declared as Regard writes them.

    Args:
        metadata: the declared metadata of each array, by path.
        facts: the recording.
        calls: its calls.

    Raises:
        RecordingError: one is missing, or differs.
    """
    found: Specs = {}
    for number, call in enumerate(calls):
        folder = f"calls/{number:04d}"
        found[folder] = call_specs(call) | part_specs(metadata, folder, call)
        check_declared(metadata, folder, found[folder])
    for number, text in enumerate(facts.texts):
        folder = f"texts/{number}"
        found[folder] = text_specs(metadata, folder, text)
        check_declared(metadata, folder, found[folder])
    found["all"] = _maps_of_all(facts, calls)
    check_declared(metadata, "all", found["all"])
    return found


def _maps_of_all(facts: Facts, calls: Sequence[CallFacts]) -> dict[str, ArraySpec]:
    """Return the maps of the mean over all heads: none unless several calls have one size."""
    sizes = {(call.queries, call.keys) for call in calls}
    cells = calls[0].cells if len(calls) > 1 and len(sizes) == 1 else []
    if facts.all_cells != cells:
        raise RecordingError(f"all_cells must be {cells}, got {facts.all_cells[:9]}")
    if not cells:
        return {}
    return map_specs(cells, calls[0].queries, calls[0].keys, pools_of_all(calls))


def call_specs(facts: CallFacts) -> dict[str, ArraySpec]:
    """Return the arrays of a call, except those of its pattern and bias."""
    heads, rows, queries, keys = facts.heads, facts.rows, facts.queries, facts.keys
    stored = stored_dtype(facts.dtype).name
    found = {
        "entropy": ArraySpec.of((rows, queries), "float32", (1, LINE)),
        "received": ArraySpec.of((rows, keys), "float32", (1, LINE)),
        "thumbs": ArraySpec.of((heads, *facts.thumb), "float32"),
    }
    if facts.stored == "scores":
        chunk = (1, ROWS, facts.key_dim)
        lse = "float64" if facts.dtype == "float64" else "float32"
        found["query"] = ArraySpec.of((heads, queries, facts.key_dim), stored, chunk)
        found["key"] = ArraySpec.of((facts.key_heads, keys, facts.key_dim), stored, chunk)
        found["lse"] = ArraySpec.of((heads, queries), lse, (1, LINE))
    else:
        found["weights"] = ArraySpec.of((heads, queries, keys), stored, (1, TILE, TILE))
    pools = POOLS
    if facts.effects is not None:
        pools = (*POOLS, EFFECT)
        found |= _effect_specs(facts, facts.effects)
    if facts.first_position is None:
        found["positions"] = ArraySpec.of((queries,), "int64")
    return found | {
        name: ArraySpec.of((rows, *spec.shape), "float32", (1, TILE, TILE))
        for name, spec in map_specs(facts.cells, queries, keys, pools).items()
    }


def _effect_specs(facts: CallFacts, effects: EffectFacts) -> dict[str, ArraySpec]:
    """Return the arrays from which effects are computed."""
    stored, size = stored_dtype(effects.dtype).name, effects.value_dim
    totals = "float64" if facts.dtype == "float64" else "float32"
    return {
        "value": ArraySpec.of((effects.key_heads, facts.keys, size), stored, (1, ROWS, size)),
        "gradient": ArraySpec.of((facts.heads, facts.queries, size), stored, (1, ROWS, size)),
        "totals": ArraySpec.of((facts.heads, facts.queries), totals, (1, LINE)),
    }


def pools_of_all(calls: Sequence[CallFacts]) -> tuple[str, ...]:
    """Return the pools of the mean over all heads: effects if all calls have them."""
    return (*POOLS, EFFECT) if all(call.effects for call in calls) else POOLS


def map_specs(
    cells: Iterable[int], queries: int, keys: int, pools: Sequence[str]
) -> dict[str, ArraySpec]:
    """Return the maps of the mean over all heads."""
    return {
        f"{pool}/{cell}": ArraySpec.of(
            (-(-queries // cell), -(-keys // cell)), "float32", (TILE, TILE)
        )
        for cell in cells
        for pool in pools
    }


def is_map(name: str) -> bool:
    """Return whether an array is a map."""
    return name.split("/")[0] in (*POOLS, EFFECT)


def stored_arrays(
    files: Files, folder: str, specs: Mapping[str, ArraySpec]
) -> dict[str, StoredArray]:
    """Return the arrays of a folder by name; maps omit chunks of NaN."""
    return {
        name: StoredArray(files, f"{folder}/{name}", spec, sparse=is_map(name))
        for name, spec in specs.items()
    }


def check_declared(
    metadata: Mapping[str, Any], folder: str, specs: Mapping[str, ArraySpec]
) -> None:
    """Check that arrays have the dtypes, shapes, chunks and codecs that Regard writes.

    Args:
        metadata: the declared metadata of each array, by path.
        folder: the folder of the arrays.
        specs: the expected arrays.

    Raises:
        RecordingError: one is missing, or differs.
    """
    for name, spec in specs.items():
        found, wanted = metadata.get(f"{folder}/{name}"), spec.metadata()
        if not isinstance(found, dict):
            raise RecordingError(f"{folder} is damaged: it has no {name}; record it again")
        if found == wanted:
            continue
        shape, dtype = found.get("shape"), found.get("data_type")
        if (shape, dtype) != (wanted["shape"], wanted["data_type"]):
            raise RecordingError(
                f"{folder}/{name} must be {spec.dtype} of shape {list(spec.shape)}, got "
                f"{str(dtype)[:50]} of shape {str(shape)[:50]}: record it again"
            )
        differ = [one for one in {**wanted, **found} if found.get(one) != wanted.get(one)]
        raise RecordingError(
            f"{folder}/{name} is not written by Regard: its {differ[0][:50]} is "
            f"{str(found.get(differ[0]))[:200]}"
        )


def part_specs(metadata: Mapping[str, Any], folder: str, facts: CallFacts) -> dict[str, ArraySpec]:
    """Return the declared arrays of a pattern and a bias.

    Raises:
        RecordingError: one is none that Regard writes, or they are too large.
    """
    found: dict[str, ArraySpec] = {}
    total = 0
    for role, name in (*arrays_named(facts.pattern), *arrays_named(facts.bias)):
        types, *sizes = _parts(facts)[role]
        found[name] = spec = _declared(metadata, f"{folder}/{name}", types, MOST_PART, len(sizes))
        if [size or got for size, got in zip(sizes, spec.shape, strict=True)] != list(spec.shape):
            raise RecordingError(
                f"{folder}/{name} must be {role} of shape {sizes}, got {list(spec.shape)}"
            )
        if not all(spec.shape):
            raise RecordingError(
                f"{folder}/{name} must be {role} with at least one number, got shape "
                f"{list(spec.shape)}"
            )
        total += math.prod(spec.shape)
    if total > MOST_PART:
        raise RecordingError(
            f"{folder}: the arrays of its pattern and bias must have at most {MOST_PART:,} "
            f"numbers, got {total:,}"
        )
    return found


def _parts(facts: CallFacts) -> dict[str, tuple[Any, ...]]:
    """Return the dtypes and the known sizes of an array, by its role."""
    floats = ("float16", "float32", "float64")
    return {
        "edges": (("int64",), None, 2),
        "ids": (("int64",), facts.keys),
        "mask": (("bool",), None, facts.keys),
        "slopes": (floats, facts.heads),
        "table": (floats, None, facts.heads),
        "values": (floats, None, None, None),
    }


def text_specs(metadata: Mapping[str, Any], folder: str, facts: TextFacts) -> dict[str, ArraySpec]:
    """Return the arrays of a text, in their declared sizes.

    Raises:
        RecordingError: one is none that Regard writes, or they are too large.
    """
    found: dict[str, ArraySpec] = {
        "tokens": _declared(metadata, f"{folder}/tokens", ("uint8",), MOST_BYTES),
        "token_stops": ArraySpec.of((facts.tokens,), "int64"),
    }
    if f"{folder}/text" in metadata:
        found["text"] = _declared(metadata, f"{folder}/text", ("uint8",), MOST_BYTES)
        # A character is one to four bytes.
        size = math.prod(found["text"].shape)
        if not facts.characters <= size <= 4 * facts.characters:
            raise RecordingError(
                f"{folder}/text must have {facts.characters:,} characters, got {size:,} bytes"
            )
    elif facts.characters:
        raise RecordingError(f"{folder} is damaged: it has no text; record it again")
    if f"{folder}/offsets" in metadata:
        found["offsets"] = ArraySpec.of((facts.tokens, 2), "int64")
    return found


def _declared(
    metadata: Mapping[str, Any], path: str, types: Sequence[str], most: int, axes: int = 1
) -> ArraySpec:
    """Return the spec of a declared array, if its type and its sizes are allowed."""
    found = metadata.get(path)
    if not isinstance(found, dict):
        raise RecordingError(f"{path} is missing: record it again")
    shape, dtype = found.get("shape"), found.get("data_type")
    if not _is_shape(shape, axes, most) or dtype not in types:
        raise RecordingError(
            f"{path} must be {' or '.join(types)} of {axes} {'axis' if axes == 1 else 'axes'} and "
            f"at most {most:,} numbers, got {str(dtype)[:50]} of shape {str(shape)[:50]}"
        )
    return ArraySpec.of(shape, str(dtype))


def _is_shape(shape: object, axes: int, most: int) -> TypeGuard[list[int]]:
    """Return whether a value is the shape of an array with so many axes and numbers."""
    if not isinstance(shape, list) or len(shape) != axes:
        return False
    # Each axis is bounded too: 2⁴⁰ × 0 numbers are none, and their indices fill the memory.
    return all(type(n) is int and 0 <= n <= most for n in shape) and math.prod(shape) <= most
