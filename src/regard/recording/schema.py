"""What a recording says of itself, checked when it is opened.

`docs/reference/recording-format.md` describes it for readers of the files.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

VERSION = 1
ATTRIBUTE = "regard"
"""The attribute of a group that says what is in it."""

TILE = 256
"""A tile, and a chunk of a stored map, has so many cells along each axis."""

FINEST = 16
"""A cell of the finest stored map has so many tokens along each axis: finer ones are computed."""

THUMB = 32
"""A small picture has up to so many rows and columns."""

MOST_TOKENS = 2**21
MOST_BYTES = 2**25
"""So many bytes a text has at most, and so many its tokens together."""

MOST_POSITION = 2**32
MOST_CALLS = 10_000
MOST_HEADS = 2**15
"""So many heads all calls have together."""

MOST_WIDTH = 2**17
"""So many numbers all heads of a call have at most for one token."""

_NAME = "regard recording"

# What is longer is no name. Sizes are bounded so that nothing can be declared that would take more
# to open, to list or to compute than to send.
_Name = Annotated[str, Field(max_length=1000)]
_Position = Annotated[int, Field(ge=-MOST_POSITION, le=MOST_POSITION)]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class TextFacts(_Facts):
    """A text that attention looks at.

    Attributes:
        name: "text", or "source" and "target" of an encoder–decoder.
        tokens: how many tokens it has.
        characters: how many characters it has, 0 if only its tokens are known.
        sha256: of the text in UTF-8, or of the tokens where there is no text.
    """

    name: _Name
    tokens: int = Field(ge=1, le=MOST_TOKENS)
    characters: int = Field(ge=0, le=MOST_BYTES)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Section(_Facts):
    """A part of a text that has a title.

    Attributes:
        text: the number of the text.
        token: where it begins.
        title: what it is called.
    """

    text: int = Field(ge=0)
    token: int = Field(ge=0)
    title: str = Field(max_length=200)


class FirstHead(_Facts):
    """The head to show first.

    Attributes:
        call: the number of the call.
        head: the number of the head.
    """

    call: int = Field(ge=0)
    head: int = Field(ge=0)


class CallFacts(_Facts):
    """A call of attention.

    Attributes:
        index: its number in the recording.
        module: the path of the module that made it.
        looks: whether it looked at its own text or at another.
        layer: the number of its layer, as the model counts.
        group: the stack that it belongs to, where a model has several.
        heads: number of query heads.
        key_heads: number of key heads.
        queries: number of queries.
        keys: number of keys.
        key_dim: size of a query or key of one head; 0 where weights are stored.
        stored: whether queries and keys are stored, or the weights themselves.
        dtype: the type of what is stored.
        scale: the factor on the scores.
        first_position: where the first query stands among the keys; None if `positions` has a
            place for each.
        query_text: the number of the text that it looks from.
        key_text: the number of the text that it looks at.
        pattern: who may look at whom.
        bias: what order does to a score.
        sinks: a score for each head that takes its share of every row.
        cells: how many tokens a cell of each stored map has, ascending, each twice the one before.
        thumb: rows and columns of the small picture of each head.
        measures: a number for each head; None where it has no meaning.
        error: the largest difference between a recorded weight and the one that was seen.
        sha256: of what is stored of it.
    """

    index: int = Field(ge=0, lt=MOST_CALLS)
    module: _Name
    looks: Literal["self", "cross"]
    layer: _Name
    group: _Name
    heads: int = Field(ge=1, le=MOST_HEADS)
    key_heads: int = Field(ge=1)
    queries: int = Field(ge=1, le=MOST_TOKENS)
    keys: int = Field(ge=1, le=MOST_TOKENS)
    key_dim: int = Field(ge=0)
    stored: Literal["scores", "weights"]
    dtype: Literal["float16", "bfloat16", "float32", "float64"]
    scale: float
    first_position: _Position | None
    query_text: int = Field(ge=0)
    key_text: int = Field(ge=0)
    pattern: dict[str, Any]
    bias: dict[str, Any] | None
    sinks: list[float] | None
    cells: list[int]
    thumb: tuple[int, int]
    measures: dict[_Name, list[float | None]]
    error: float = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.heads % self.key_heads:
            raise ValueError(f"{self.heads} heads can't share {self.key_heads} key heads")
        if self.heads * self.key_dim > MOST_WIDTH:
            raise ValueError(f"heads × key_dim must be up to {MOST_WIDTH:,}")
        if self.cells != cells_of(self.max_zoom):
            raise ValueError(f"cells must be {cells_of(self.max_zoom)}, got {self.cells[:9]}")
        if self.thumb != thumb_of(self.queries, self.keys):
            raise ValueError(f"thumb must be {thumb_of(self.queries, self.keys)}, got {self.thumb}")
        for name, values in (*self.measures.items(), ("sinks", self.sinks)):
            if values is not None and len(values) != self.heads:
                raise ValueError(f"{name} must have {self.heads} numbers, got {len(values)}")
        return self

    @property
    def rows(self) -> int:
        """How many rows an array over heads has: one for each, and one for their mean."""
        return self.heads + (self.heads > 1)

    @property
    def max_zoom(self) -> int:
        """The level of the map at which a cell is one pair."""
        return max_zoom(self.queries, self.keys)


class Facts(_Facts):
    """A recording.

    Attributes:
        format: what this is.
        version: of this schema.
        complete: whether all calls are there.
        title: what was recorded, in a few words.
        model: the name of the model.
        date: when it was recorded, in UTC.
        versions: of the libraries that it was recorded with.
        dtype: the type of queries and keys.
        error: the largest difference between a recorded weight and the one that was seen, in the
            rows that were compared.
        texts: one, or for an encoder–decoder two.
        sections: parts of the texts that have a title.
        calls: how many calls there are.
        first: the head to show first; None in recordings that don't name one.
        all_cells: how many tokens a cell of each stored map of the mean of all heads has; empty
            where calls are of different sizes.
        digest: the content address, of all that is stored.
    """

    format: Literal["regard recording"] = _NAME
    version: Literal[1] = VERSION
    complete: bool
    title: _Name
    model: _Name
    date: _Name
    versions: dict[_Name, _Name]
    dtype: _Name
    error: float = Field(ge=0)
    texts: list[TextFacts] = Field(min_length=1, max_length=2)
    sections: list[Section]
    calls: int = Field(ge=0, le=MOST_CALLS)
    first: FirstHead | None = None
    all_cells: list[int]
    digest: str = Field(pattern="^[0-9a-f]{16}$|^$")

    @model_validator(mode="after")
    def _sections_are_in_their_texts(self) -> Self:
        for one in self.sections:
            if one.text >= len(self.texts) or one.token >= self.texts[one.text].tokens:
                raise ValueError(f"a section begins at token {one.token} of text {one.text}")
        return self


def max_zoom(queries: int, keys: int) -> int:
    """Return at which level a cell of the map is one pair; at level 0 one tile has all of it.

    >>> max_zoom(8192, 8192), max_zoom(8193, 100), max_zoom(20, 20)
    (5, 6, 0)
    """
    return max(0, (max(queries, keys) - 1).bit_length() - TILE.bit_length() + 1)


def cells_of(max_zoom: int) -> list[int]:
    """Return how many tokens a cell of each stored map has.

    >>> cells_of(5), cells_of(1)
    ([16, 32], [2])
    """
    coarsest = 2**max_zoom
    return [2**power for power in range(max_zoom + 1) if 2**power >= min(FINEST, coarsest)]


def thumb_of(queries: int, keys: int) -> tuple[int, int]:
    """Return how many rows and columns the small picture of a head has.

    >>> thumb_of(300, 20)
    (30, 20)
    """
    rows, columns = (-(-size // -(-size // THUMB)) for size in (queries, keys))
    return rows, columns
