"""The JSON that the viewer asks for, as it is documented and as it is written."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from regard.recording.schema import FirstHead, Section
from regard.server.tile_ids import PoolName

FORMAT = 1
"""The version of the layout. A viewer of another version says so and stops."""


def _listed(kind: str, count: int) -> WithJsonSchema:
    """Describe a tuple in words that older tools know too."""
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
    """What went wrong, in the form that every error has."""

    error: str = Field(description="What is wrong, and what to do.")


class Listed(_Json):
    """A recording in the list of recordings."""

    name: str
    digest: str = Field(description="The content address: all below data/DIGEST/ is of it.")
    title: str
    model: str
    tokens: int


class Recordings(_Json):
    """The list of recordings."""

    version: int = FORMAT
    live: bool = Field(description="Whether a server computes what is not stored.")
    recordings: list[Listed]


class Provenance(_Json):
    """Where a recording comes from."""

    # Written as in the recording.
    model_config = ConfigDict(alias_generator=None)

    model: str
    date: str
    versions: dict[str, str]
    dtype: str
    error: float = Field(description="The largest difference from a weight that was seen.")
    text_sha256: str


class TextInfo(_Json):
    """A text, by how long it is."""

    name: str
    tokens: int


class MeasureKind(_Json):
    """A kind of number that each head has."""

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
    """How deep the mean of all heads goes."""

    max_zoom: int
    full_zoom: int


class Published(_Json):
    """What there is of a recording in a published folder."""

    heads: list[HeadPair] = Field(description="Call and head.")
    max_zoom: int
    pools: list[PoolName]


class Info(_Json):
    """All that the viewer must know of a recording before it asks for tiles."""

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
    first: FirstHead | None = Field(description="The head to show first, if it is known.")
    all: AllHeads | None
    published: Published | None


class Pieces(_Json):
    """A text: one string per token; joined they are the running text."""

    pieces: list[str]


class Row(_Json):
    """Where a query looks most."""

    keys: list[int] = Field(description="By descending weight.")
    weights: list[float]
    rest: float = Field(description="The weight that is not listed.")


class RowBlock(_Json):
    """Where some queries look most."""

    first: int = Field(description="The first of the queries.")
    rows: list[Row]


class Column(_Json):
    """Who looks most at a key."""

    queries: list[int] = Field(description="By descending weight.")
    weights: list[float]
    sum: float = Field(description="Of all weights on the key.")
    count: int = Field(description="How many queries there are.")


class Weight(_Json):
    """One pair."""

    weight: float
    score: float | None = Field(
        description="The logarithm of the weight before it was divided by the sum of its row."
    )


class EdgeList(_Json):
    """The strongest pairs of a rectangle."""

    edges: list[Edge] = Field(description="Query, key, weight.")
    rest: float


class Matches(_Json):
    """Where a text has what was searched for."""

    matches: list[TokenSpan] = Field(description="The first and the last token of each.")
    more: bool


Media = Literal["application/json", "application/octet-stream"]
