"""`save`: write a watched run to disk."""

import hashlib
import json
import platform
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from os import PathLike
from pathlib import Path

import torch
import zarr

from regard.calls.call import AttentionCall
from regard.calls.choose import listed
from regard.calls.first_look import first_looks
from regard.calls.texts import check_whole, layers_of, rows_as_text, texts_of
from regard.matrix import AttentionMatrix
from regard.matrix.progress import progressing
from regard.printable import well_formed
from regard.recording.arrays import DTYPES
from regard.recording.digest import digest_of
from regard.recording.files import DESCRIPTION, SUMS, Files, Folder, write_sums
from regard.recording.opening import PARTIAL, open
from regard.recording.pyramid import mean_of_all
from regard.recording.recording import Recording
from regard.recording.replacing import FolderKind, put_in_place, sole_writer
from regard.recording.schema import ATTRIBUTE, Facts, FirstHead, Section, TextFacts
from regard.recording.stored import CallArrays
from regard.recording.text import Offsets, write_text
from regard.recording.write_call import write_call

_RECORDING = FolderKind(DESCRIPTION, frozenset({DESCRIPTION, SUMS, "all", "calls", "texts"}))


def save(
    calls: Sequence[AttentionCall | AttentionMatrix] | AttentionCall | AttentionMatrix,
    path: str | PathLike[str],
    *,
    tokens: Sequence[str],
    text: str | None = None,
    offsets: Offsets | None = None,
    source: Sequence[str] | None = None,
    source_text: str | None = None,
    batch: int | None = None,
    model: str = "",
    title: str | None = None,
    sections: Sequence[tuple[int, str]] | None = None,
    target: str | None = None,
    dtype: str | torch.dtype | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
) -> Recording:
    """Write watched calls to a folder, with maps of every head.

        with regard.watch(model) as seen:
            model(**inputs)
        regard.save(seen, "book.regard", tokens=tokens, text=text)

    Stores queries, keys and log-sum-exps, which give every weight exactly; and values and gradients
    if the model was watched with `effects=True`, which give every effect. Maps and summaries take
    about as long as `AttentionMatrix.summarize`. Calls are written one by one into `NAME.partial`,
    which is renamed at the end. If interrupted, call it again: finished calls are kept.

    Args:
        calls: calls of `regard.watch`, one call, or matrices.
        path: the output folder, by convention `NAME.regard`.
        tokens: the tokens as the tokenizer writes them; those of the decoder of an encoder–decoder.
            Queries may be the last of them only, as after a cached prefix.
        text: the text of `tokens`, if known.
        offsets: start and end of each token in the text, in characters; by default they are found
            by search.
        source: the tokens of the encoder of an encoder–decoder.
        source_text: the text of `source`.
        batch: the sequence to record; needed if there are several.
        model: the name of the model.
        title: the title; by default the name of the folder.
        sections: the first token and the title of each section; by default found by headings.
        target: the name of the number whose `backward` was called, such as "Berlin over Paris".
        dtype: the dtype of stored queries and keys, such as "float16"; by default their own. The
            recording has the largest error of the weights.
        overwrite: whether to replace an existing recording, which is removed last.
        progress: whether to show a progress bar; by default as for `AttentionMatrix.summarize`.

    Returns:
        The recording, opened.

    Raises:
        FileExistsError: the path exists, or another process is writing it.
        TypeError: tokens are not a list of strings, or a pattern or bias is not one of Regard's.
        ValueError: tokens do not fit the calls, or there is a target and no call has effects.
    """
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.absolute().parent}: create it first")
    with sole_writer(path, _RECORDING) as partial:
        _check_free(path, overwrite)
        _write(
            calls,
            partial,
            tokens=tokens,
            text=text,
            offsets=offsets,
            source=source,
            source_text=source_text,
            batch=batch,
            model=well_formed(model),
            title=well_formed(path.stem if title is None else title),
            sections=None if sections is None else [(i, well_formed(name)) for i, name in sections],
            target=None if target is None else well_formed(target),
            dtype=dtype,
            progress=progress,
        )
        put_in_place(partial, path, _RECORDING)
    return open(path)


def _write(
    calls: Sequence[AttentionCall | AttentionMatrix] | AttentionCall | AttentionMatrix,
    partial: Path,
    *,
    tokens: Sequence[str],
    text: str | None,
    offsets: Offsets | None,
    source: Sequence[str] | None,
    source_text: str | None,
    batch: int | None,
    model: str,
    title: str,
    sections: Sequence[tuple[int, str]] | None,
    target: str | None,
    dtype: str | torch.dtype | None,
    progress: bool | None,
) -> None:
    """Write a recording, or its missing calls; arguments as for `save`."""
    narrow = _dtype(dtype)
    texts = texts_of(tokens, source)
    layers = layers_of(listed(calls), texts, batch)
    first = next(first_looks(layers, batch))
    layers, texts = rows_as_text(layers, texts)
    check_whole(layers, texts)
    _check_all_heads([layer.call for layer in layers])
    root = zarr.open_group(partial, mode="a")
    files = Files(Folder(partial))
    listed_texts: list[tuple[Sequence[str], str | None, Offsets | None]] = []
    if source is not None:
        listed_texts.append((source, source_text, None))
    own_text = len(listed_texts)
    listed_texts.append((tokens, text, offsets))
    if len(texts) > len(listed_texts):
        listed_texts.append((tokens[-len(texts[1].pieces) :], None, None))
    effects = any(layer.call.has_effects for layer in layers)
    if target is not None and not effects:
        raise ValueError(
            f"target must be None if no call has effects, got {target!r}: watch the model with "
            "effects=True, and call backward() on the target"
        )
    facts = Facts(
        version=2 if effects else 1,
        complete=False,
        title=title,
        model=model,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=_versions(),
        dtype="float32",
        error=0.0,
        texts=[
            _text_facts(one.name, some, its)
            for one, (some, its, _) in zip(texts, listed_texts, strict=True)
        ],
        sections=[
            Section(text=own_text, token=token, title=name) for token, name in sections or ()
        ],
        calls=len(layers),
        first=FirstHead(call=first.layer, head=first.head),
        target=target or "the target" if effects else None,
        all_cells=[],
        digest="",
    )
    root.attrs[ATTRIBUTE] = facts.model_dump(mode="json")
    found: list[Section] = []
    for number, (some, its, places) in enumerate(listed_texts):
        group = root.create_group(f"texts/{number}", overwrite=True)
        found += write_text(group, number, some, its, places)
    group = root.require_group("calls")
    written: list[CallArrays] = []
    for number, layer in enumerate(progressing(layers, "layers recorded", len(layers), progress)):
        call = replace(
            layer.call,
            index=number,
            layer=layer.name,
            group=layer.group,
            query_text=layer.queries.text,
            key_text=layer.keys.text,
        )
        written.append(write_call(call, group, files, batch, narrow))
    with suppress(KeyError):
        del root["all"]
    all_cells = mean_of_all(written, root.create_group("all", overwrite=True))
    facts = facts.model_copy(
        update={
            "complete": True,
            "sections": facts.sections if sections is not None else found,
            "dtype": written[0].facts.dtype if written else "float32",
            "error": max((call.facts.error for call in written), default=0.0),
            "all_cells": all_cells,
        }
    )
    _finish(root, partial, facts)


def _check_all_heads(calls: Sequence[AttentionCall]) -> None:
    """Raise ValueError if other processes have heads of a call."""
    for call in calls:
        if call.num_all_heads is not None:
            raise ValueError(
                f"{call} has heads {call.heads_as_text}, and a recording has all: "
                "bring them together with seen.gather(), and save on one rank"
            )


def _finish(root: zarr.Group, folder: Path, facts: Facts) -> None:
    """Write checksums and digest, and mark a recording as complete."""
    root.attrs[ATTRIBUTE] = facts.model_dump(mode="json")
    with warnings.catch_warnings():
        # Zarr warns that consolidated metadata is not in the specification of version 3.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(root.store)
    description = json.loads((folder / DESCRIPTION).read_bytes())
    declared = description["consolidated_metadata"]["metadata"].items()
    write_sums(folder, (name for name, one in declared if one["node_type"] == "array"))
    digest = digest_of(description, (folder / SUMS).read_bytes())
    description["attributes"][ATTRIBUTE]["digest"] = digest
    written = folder / f"{DESCRIPTION}{PARTIAL}"
    written.write_text(json.dumps(description, indent=2), encoding="utf-8")
    written.replace(folder / DESCRIPTION)


def _check_free(path: Path, overwrite: bool) -> None:
    if not path.exists():
        return
    if not overwrite:
        raise FileExistsError(f"{path} exists: remove it, or pass overwrite=True")
    if not (path / DESCRIPTION).is_file():
        raise FileExistsError(f"{path} is not a recording: choose another name")


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        name = None if dtype is None else str(dtype).split(".")[-1]
    else:
        name = dtype
    if name is not None and name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {name!r}")
    return None if name is None else DTYPES[name]


def _text_facts(name: str, tokens: Sequence[str], text: str | None) -> TextFacts:
    content = "\0".join(tokens) if text is None else text
    sha256 = hashlib.sha256(content.encode("utf-8", errors="replace")).hexdigest()
    return TextFacts(name=name, tokens=len(tokens), characters=len(text or ""), sha256=sha256)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("regard", "torch", "transformers", "zarr"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
