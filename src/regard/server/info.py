"""The metadata of a recording for the viewer."""

from collections.abc import Iterator, Sequence

from regard.calls.measures import MEASURES, Measure
from regard.printable import well_formed
from regard.recording import Recording
from regard.server.models import (
    AllHeads,
    CallInfo,
    EffectInfo,
    Info,
    Listed,
    MeasureKind,
    Provenance,
    Published,
    Recordings,
    TextInfo,
)
from regard.server.tile_ids import HeadName

TILE_SIZE = 256
ROW_BLOCK = 16
"""Rows per file of strongest keys."""


def recordings(listed: Sequence[Recording], *, live: bool) -> Recordings:
    """Return the list of recordings."""
    return Recordings(
        live=live,
        recordings=[
            Listed(
                name=well_formed(one.name),
                digest=one.digest,
                title=well_formed(one.title),
                model=well_formed(one.about.model),
                tokens=one.about.texts[-1].tokens,
            )
            for one in listed
        ],
    )


def info(recording: Recording, published: Published | None = None) -> Info:
    """Return the metadata of a recording for the viewer.

    Args:
        recording: the recording.
        published: the published part; None on a server.
    """
    return Info(
        live=published is None,
        name=well_formed(recording.name),
        title=well_formed(recording.title),
        digest=recording.digest,
        about=Provenance(
            model=well_formed(recording.about.model),
            date=recording.about.date,
            versions=recording.about.versions,
            dtype=recording.about.dtype,
            error=recording.about.error,
            text_sha256=recording.about.texts[-1].sha256,
        ),
        tile_size=TILE_SIZE,
        row_block=ROW_BLOCK,
        texts=[TextInfo(name=text.name, tokens=text.tokens) for text in recording.about.texts],
        sections=[
            one.model_copy(update={"title": well_formed(one.title)}) for one in recording.sections
        ],
        measures=[
            MeasureKind(name=name, title=one.name, unit=one.unit, about=one.about)
            for name, one in _measures(recording).items()
        ],
        calls=[
            CallInfo(
                call=facts.index,
                layer=facts.layer,
                group=facts.group,
                module=facts.module,
                looks=facts.looks,
                queries=facts.queries,
                keys=facts.keys,
                query_text=facts.query_text,
                key_text=facts.key_text,
                heads=facts.heads,
                max_zoom=facts.max_zoom,
                causal=stored.is_causal,
                measures=facts.measures,
            )
            for stored in recording.stored
            for facts in [stored.facts]
        ],
        first=recording.about.first,
        effects=_effects(recording),
        all=_all_heads(recording),
        published=published,
    )


def _measures(recording: Recording) -> dict[str, Measure]:
    """Return what is known of each head; its effect, if all calls have effects."""
    if _effects(recording) is None:
        return MEASURES
    about = f"effect on {recording.target}: gradient · output, summed"
    return {**MEASURES, "effect": Measure("effect", "", well_formed(about))}


def _effects(recording: Recording) -> EffectInfo | None:
    """Return the metadata of effects, if all calls have them."""
    if recording.target is None or not recording.has_effects:
        return None
    largest = max(one.facts.effects.largest for one in recording.stored if one.facts.effects)
    return EffectInfo(target=well_formed(recording.target), largest=largest)


def heads_of(recording: Recording) -> Iterator[HeadName]:
    """Yield the heads of a recording, call by call, the mean of each call first."""
    for stored in recording.stored:
        yield HeadName(stored.facts.index, "mean")
        for head in range(stored.facts.heads):
            yield HeadName(stored.facts.index, head)


def title_of(recording: Recording, of: HeadName) -> str:
    """Return the display name of a head: LAYER.HEAD, after its stack if there are several.

    Raises:
        IndexError: there is no such call.
    """
    call = recording.arrays_of(of.call).facts
    return f"{call.group} {call.layer}.{of.head}".strip()


def _all_heads(recording: Recording) -> AllHeads | None:
    if not recording.has_all:
        return None
    return AllHeads(max_zoom=recording.max_zoom("all"), full_zoom=recording.full_zoom)
