"""`save`: write a watched run to disk."""

import hashlib
import json
import platform
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from os import PathLike
from pathlib import Path

import torch
import zarr
from torch import distributed

from regard.calls.call import AttentionCall
from regard.calls.choose import listed
from regard.calls.first_pair import FirstPair, first_pairs
from regard.calls.texts import TextLayer, check_whole, layers_of, rows_as_text, texts_of
from regard.distributed.ranks import Ranks, check_same, is_initialized
from regard.matrix import AttentionMatrix
from regard.matrix.sharded import sharded_queries, with_own_heads
from regard.printable import well_formed
from regard.progress import progressing
from regard.recording.arrays import DTYPES
from regard.recording.contents import RECORDING, check_contents, keep_calls
from regard.recording.digest import digest_of
from regard.recording.files import DESCRIPTION, SUMS, write_sums
from regard.recording.layout import recording_specs
from regard.recording.opening import PARTIAL, open
from regard.recording.pyramid import mean_of_all
from regard.recording.recording import Recording
from regard.recording.replacing import joined_writer, put_in_place, sole_writer
from regard.recording.schema import ATTRIBUTE, Facts, FirstHead, Section, TextFacts
from regard.recording.stored import CallArrays
from regard.recording.text import Offsets, write_text
from regard.recording.write_call import write_call

_Text = tuple[Sequence[str], str | None, Offsets | None]
"""Tokens, their text and their offsets."""


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
    group: "distributed.ProcessGroup | None" = None,
) -> Recording:
    """Write watched calls to a folder, with maps of every head.

        with regard.watch(model) as seen:
            model(**inputs)
        regard.save(seen, "book.regard", tokens=tokens, text=text)

    Stores queries, keys and log-sum-exps, which give every weight exactly; and values and gradients
    if the model was watched with `effects=True`, which give every effect. Maps and summaries take
    about as long as `AttentionMatrix.summarize`. Calls are written one by one into `NAME.partial`,
    which is renamed at the end. If interrupted, call it again: finished calls are kept.

    Of a tensor-parallel model, and of matrices of a sequence that several ranks share, all ranks
    call it with the same path, on a file system that they share. Each writes its own heads, and
    rank 0 the rest. If one fails, it raises on all.

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
        group: the ranks that write together; by default those of the matrices, or all if calls have
            some of the heads only.

    Returns:
        The recording, opened.

    Raises:
        FileExistsError: the path exists, or another process is writing it.
        TypeError: tokens are not a list of strings, or a pattern or bias is not one of Regard's.
        ValueError: tokens do not fit the calls, there is a target and no call has effects, or ranks
            have seen different calls.
        RuntimeError: another rank has failed.
    """
    path = Path(path)
    calls, group = _by_heads(listed(calls), group)
    ranks = _ranks(calls, group)
    with ExitStack() as stack:
        lock = partial(_lock, stack, path, overwrite, ranks)
        ranks.first(lock)
        ranks.run(lock if ranks.rank else lambda: None)
        _write(
            calls,
            path.with_name(path.name + PARTIAL),
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
            ranks=ranks,
        )
        ranks.first(lambda: put_in_place(path.with_name(path.name + PARTIAL), path, RECORDING))
    return open(path)


def _by_heads(
    calls: Sequence[AttentionCall], group: "distributed.ProcessGroup | None"
) -> tuple[list[AttentionCall], "distributed.ProcessGroup | None"]:
    """Return calls of which each rank has some heads, if each has some queries, and the ranks.

    Raises:
        ValueError: other ranks share the queries than those that write.
    """
    found: list[AttentionCall] = []
    for call in calls:
        queries = None if call.source is None else sharded_queries(call.source)
        if queries is None:
            found.append(call)
            continue
        group = group or queries.ranks.group
        if queries.ranks.group is not group:
            raise ValueError("group must be that of the matrix: those ranks have its rows")
        view, first = with_own_heads(call.matrix.view)
        own = AttentionCall.of(AttentionMatrix.of(view), call.module, call.kind)
        found.append(own.sharded(first, call.heads))
    return found, group


def _ranks(calls: Sequence[AttentionCall], group: "distributed.ProcessGroup | None") -> Ranks:
    """Return the processes that have the heads of calls.

    Raises:
        ValueError: other processes have some, and there is no group of them.
    """
    sharded = [call for call in calls if call.num_all_heads is not None]
    if group is None and not sharded:
        return Ranks()
    if sharded and not is_initialized():
        raise ValueError(
            f"{sharded[0]} has heads {sharded[0].heads_as_text}, and a recording has all: "
            "call save on all ranks"
        )
    return Ranks.of(group)


def _lock(stack: ExitStack, path: Path, overwrite: bool, ranks: Ranks) -> None:
    """Lock a recording for writing, on rank 0 before others."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.absolute().parent}: create it first")
    if ranks.rank:
        stack.enter_context(joined_writer(path))
        return
    stack.enter_context(sole_writer(path, RECORDING, joint=ranks.size > 1))
    _check_free(path, overwrite)


def _write(
    calls: Sequence[AttentionCall],
    folder: Path,
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
    ranks: Ranks,
) -> None:
    """Write a recording, or its missing calls; arguments as for `save`."""
    listed_texts: list[_Text] = [] if source is None else [(source, source_text, None)]
    own_text = len(listed_texts)
    listed_texts.append((tokens, text, offsets))

    def prepare() -> tuple[tuple[torch.dtype | None, list[TextLayer]], tuple[Facts, FirstPair]]:
        narrow = _dtype(dtype)
        texts = texts_of(tokens, source)
        layers = layers_of(calls, texts, batch)
        first = next(first_pairs(layers, batch))
        first = replace(first, head=first.head + layers[first.layer].call.first_head)
        layers, texts = rows_as_text(layers, texts)
        check_whole(layers, texts)
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
            target=target or "the target" if effects else None,
            all_cells=[],
            digest="",
        )
        return (narrow, layers), (facts, first)

    (narrow, layers), prepared = ranks.share(prepare)
    all_facts, first = zip(*prepared, strict=True)
    check_same([of_rank.model_dump(exclude={"date"}) for of_rank in all_facts])
    facts = all_facts[0].model_copy(update={"first": _first_head(first)})
    found = ranks.first(lambda: _begin(folder, facts, listed_texts))
    root = ranks.run(lambda: _begun(folder, facts))
    group = root.require_group("calls")
    written: list[CallArrays] = []
    shown = progress if ranks.rank == 0 else False
    for number, layer in enumerate(progressing(layers, "layers recorded", len(layers), shown)):
        call = replace(
            layer.call,
            index=number,
            layer=layer.name,
            group=layer.group,
            query_text=layer.queries.text,
            key_text=layer.keys.text,
        )
        written.append(write_call(call, group, folder, batch, narrow, ranks))
    facts = facts.model_copy(
        update={
            "complete": True,
            "sections": facts.sections if sections is not None else found,
            "dtype": written[0].facts.dtype if written else "float32",
            "error": max((call.facts.error for call in written), default=0.0),
        }
    )
    ranks.first(lambda: _finish(root, folder, facts, written))


def _first_head(looks: Sequence[FirstPair]) -> FirstHead:
    """Return the head to show first, among those of all ranks."""
    best = min(looks, key=lambda look: (-look.weight, look.layer, look.head))
    return FirstHead(call=best.layer, head=best.head)


def _begin(folder: Path, facts: Facts, texts: Sequence[_Text]) -> list[Section]:
    """Write facts and texts, and return the sections of the texts."""
    keep_calls(folder, facts)
    # Consolidated metadata is that of the run before, which may have been interrupted at the end.
    root = zarr.open_group(folder, mode="a", use_consolidated=False)
    root.attrs[ATTRIBUTE] = facts.model_dump(mode="json")
    found: list[Section] = []
    for number, (tokens, text, offsets) in enumerate(texts):
        group = root.create_group(f"texts/{number}")
        found += write_text(group, number, tokens, text, offsets)
    root.require_group("calls")
    return found


def _begun(folder: Path, facts: Facts) -> zarr.Group:
    """Return what rank 0 has begun to write.

    Raises:
        FileNotFoundError: it is not there.
    """
    if (folder / DESCRIPTION).is_file():
        root = zarr.open_group(folder, mode="r+")
        if root.attrs.get(ATTRIBUTE) == facts.model_dump(mode="json"):
            return root
    raise FileNotFoundError(
        f"{folder}, which rank 0 has begun, is not here: all ranks must share a file system"
    )


def _finish(root: zarr.Group, folder: Path, facts: Facts, calls: list[CallArrays]) -> None:
    """Write the mean of all calls, checksums and digest, and mark a recording as complete."""
    all_cells = mean_of_all(calls, root.create_group("all"))
    facts = facts.model_copy(update={"all_cells": all_cells})
    root.attrs[ATTRIBUTE] = facts.model_dump(mode="json")
    with warnings.catch_warnings():
        # Zarr warns that consolidated metadata is not in the specification of version 3.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(root.store)
    description = json.loads((folder / DESCRIPTION).read_bytes())
    metadata = description["consolidated_metadata"]["metadata"]
    specs = recording_specs(metadata, facts, [call.facts for call in calls])
    check_contents(folder, metadata, specs)
    write_sums(folder, (f"{group}/{name}" for group, own in specs.items() for name in own))
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
    # torch says which build it is, which its package need not.
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("regard", "transformers", "zarr"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
