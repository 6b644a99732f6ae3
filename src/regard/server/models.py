"""Models of the viewer's JSON."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from regard.recording.schema import FirstHead, Section
from regard.server.tile_ids import CellName

FORMAT = 1
"""The version of the layout; the viewer refuses other versions."""


def _listed(kind: str, count: int) -> WithJsonSchema:
    """Return the schema of a tuple without `prefixItems`, which older tools lack."""
    schema: dict[str, Any] = {"type": "array", "items": {"type": kind}}
    return WithJsonSchema({**schema, "minItems": count, "maxItems": count})


HeadPair = Annotated[tuple[str, str], _listed("string", 2)]
TokenSpan = Annotated[tuple[int, int], _listed("integer", 2)]
Edge = Annotated[tuple[int, int, float], _listed("number", 3)]


class _Json(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )

    def to_bytes(self) -> bytes:
        """Return it as JSON in UTF-8; NaN becomes null."""
        return self.model_dump_json().encode()


class Fault(_Json):
    """An error."""

    error: str = Field(description="The error message.")


class Listed(_Json):
    """A recording in the list of recordings."""

    name: str
    digest: str = Field(description="The content address, as in data/DIGEST/.")
    title: str
    model: str
    tokens: int


class Recordings(_Json):
    """The list of recordings."""

    version: int = FORMAT
    live: bool = Field(description="Whether a server computes missing files.")
    recordings: list[Listed]


class Provenance(_Json):
    """The provenance of a recording."""

    # Names as in the recording.
    model_config = ConfigDict(alias_generator=None)

    model: str
    date: str
    versions: dict[str, str]
    dtype: str
    error: float = Field(description="The largest difference from a watched weight.")
    text_sha256: str


class TextInfo(_Json):
    """The length of a text."""

    name: str
    tokens: int


class MeasureKind(_Json):
    """A measure of heads."""

    name: str
    title: str
    unit: str
    about: str


class CallInfo(_Json):
    """A call of attention."""

    call: int
    layer: str
    group: str
    module: str
    looks: str
    queries: int
    keys: int
    query_text: int
    key_text: int
    heads: int
    max_zoom: int = Field(description="The level at which a cell is one pair.")
    causal: bool
    measures: dict[str, list[float | None]]


class AllHeads(_Json):
    """The zoom levels of the mean over all heads."""

    max_zoom: int
    full_zoom: int


class EffectInfo(_Json):
    """The effects of a recording."""

    target: str = Field(description="What they are effects on.")
    largest: float = Field(description="The largest by absolute value.")


class Published(_Json):
    """The published part of a recording."""

    heads: list[HeadPair] = Field(description="Call and head.")
    max_zoom: int
    pools: list[CellName]


class Info(_Json):
    """The metadata of a recording for the viewer."""

    version: int = FORMAT
    live: bool
    name: str
    title: str
    digest: str
    about: Provenance
    tile_size: int
    row_block: int
    texts: list[TextInfo]
    sections: list[Section]
    measures: list[MeasureKind]
    calls: list[CallInfo]
    first: FirstHead | None = Field(description="The head to show first, if known.")
    effects: EffectInfo | None = Field(description="If all calls have effects.")
    all: AllHeads | None
    published: Published | None


class Pieces(_Json):
    """A text as one string per token; joined, they are the text."""

    pieces: list[str]


class Row(_Json):
    """The strongest keys of a query."""

    keys: list[int] = Field(description="By descending weight.")
    weights: list[float]
    rest: float = Field(description="The summed weight of the other keys.")


class RowBlock(_Json):
    """The strongest keys of some queries."""

    first: int = Field(description="The first query.")
    rows: list[Row]


class Column(_Json):
    """The strongest queries of a key."""

    queries: list[int] = Field(description="By descending weight.")
    weights: list[float]
    sum: float = Field(description="The sum of all weights on the key.")
    count: int = Field(description="Number of queries.")


class HeadLooks(_Json):
    """The strongest look of each head of a call."""

    call: int
    tokens: list[int | None] = Field(
        description="The key that is looked at, or the query that looks; null if no look counts."
    )
    weights: list[float]


class TokenLooks(_Json):
    """The strongest look of each head from a token, or at it."""

    calls: list[HeadLooks]


class Weight(_Json):
    """One pair."""

    weight: float
    score: float | None = Field(description="The score before the softmax.")


class EdgeList(_Json):
    """The strongest pairs of a rectangle."""

    edges: list[Edge] = Field(description="Query, key, weight.")
    rest: float


class Matches(_Json):
    """The matches of a search."""

    matches: list[TokenSpan] = Field(description="The first and the last token of each match.")
    more: bool


Media = Literal["application/json", "application/octet-stream"]
