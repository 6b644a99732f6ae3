"""The metadata of a recording, validated when it is opened.

`docs/reference/recording-format.md` documents the format.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

VERSION = 2
"""The latest version of the format: 2 has effects, 1 has none."""

ATTRIBUTE = "regard"
"""The Zarr attribute with the metadata of a group."""

TILE = 256
"""Cells along each axis of a tile, and of a chunk of a stored map."""

FINEST = 16
"""Tokens along each axis of a cell of the finest stored map; finer maps are computed."""

THUMB = 32
"""Maximum rows and columns of a thumbnail."""

MOST_TOKENS = 2**21
MOST_BYTES = 2**25
"""Maximum bytes of a text, and of its tokens."""

MOST_POSITION = 2**32
MOST_CALLS = 10_000
MOST_HEADS = 2**15
"""Maximum heads of all calls."""

MOST_WIDTH = 2**17
"""Maximum heads × key_dim of a call, and heads × value_dim."""

_NAME = "regard recording"

# Sizes are bounded, so that a small file can't declare something expensive to open or list.
_Name = Annotated[str, Field(max_length=1000)]
_Position = Annotated[int, Field(ge=-MOST_POSITION, le=MOST_POSITION)]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class TextFacts(_Facts):
    """A text.

    Attributes:
        name: "text"; "source" and "target" of an encoder–decoder; "text" and "text 64–99" if only
            these tokens have rows.
        tokens: number of tokens.
        characters: number of characters; 0 if only the tokens are known.
        sha256: of the text in UTF-8, or of the tokens if there is no text.
    """

    name: _Name
    tokens: int = Field(ge=1, le=MOST_TOKENS)
    characters: int = Field(ge=0, le=MOST_BYTES)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Section(_Facts):
    """A titled section of a text.

    Attributes:
        text: the number of the text.
        token: its first token.
        title: its title.
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


_Dtype = Literal["float16", "bfloat16", "float32", "float64"]


class EffectFacts(_Facts):
    """The effects of a call on the target of a recording.

    Attributes:
        key_heads: number of heads of the values.
        value_dim: size of a value of one head.
        dtype: the dtype of values and gradients.
        largest: the largest effect by absolute value, rounded as maps are.
        error: the largest difference between recorded and watched effects.
    """

    key_heads: int = Field(ge=1)
    value_dim: int = Field(ge=1)
    dtype: _Dtype
    largest: float = Field(ge=0)
    error: float = Field(ge=0)


class CallFacts(_Facts):
    """A call of attention.

    Attributes:
        index: its number in the recording.
        module: the path of the module that made it.
        looks: "self" or "cross".
        layer: the number of its layer, as the model counts.
        group: its stack, if a model has several.
        heads: number of query heads.
        key_heads: number of key heads.
        queries: number of queries.
        keys: number of keys.
        key_dim: size of a query or key of one head; 0 if weights are stored.
        stored: whether queries and keys or weights are stored.
        dtype: the dtype of the stored tensors.
        scale: the factor on the scores.
        first_position: position of the first query; None if the array `positions` has them all.
        query_text: the number of the text of the queries.
        key_text: the number of the text of the keys.
        pattern: the mask.
        bias: the score bias.
        sinks: the sink score of each head.
        cells: tokens per cell of each stored map; each is twice the one before.
        thumb: rows and columns of the thumbnails.
        measures: a number for each head; None if undefined.
        error: the largest difference between recorded and watched weights.
        effects: its effects, if stored.
        sha256: of the stored arrays.
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
    dtype: _Dtype
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
    effects: EffectFacts | None = None
    sha256: str = Field(pattern="^[0-9a-f]{64}$")

    @property
    def mask_known(self) -> bool:
        """Whether it is known which pairs are masked."""
        return self.pattern.get("kind") != "unknown"

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.heads % self.key_heads:
            raise ValueError(
                f"heads must be a multiple of key_heads={self.key_heads}, got {self.heads}"
            )
        if self.heads * self.key_dim > MOST_WIDTH:
            raise ValueError(f"heads × key_dim must be at most {MOST_WIDTH:,}")
        if self.effects is not None:
            if self.heads % self.effects.key_heads:
                raise ValueError(f"heads of values must divide {self.heads}")
            if self.heads * self.effects.value_dim > MOST_WIDTH:
                raise ValueError(f"heads × value_dim must be at most {MOST_WIDTH:,}")
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
        """Rows of an array over heads: one for each, and one for their mean."""
        return self.heads + (self.heads > 1)

    @property
    def max_zoom(self) -> int:
        """The zoom level at which a cell is one pair."""
        return max_zoom(self.queries, self.keys)


class Facts(_Facts):
    """A recording.

    Attributes:
        format: the name of the format.
        version: the version of the format.
        complete: whether all calls are written.
        title: the title.
        model: the name of the model.
        date: the date of the recording, in UTC.
        versions: the versions of Regard and its dependencies.
        dtype: the dtype of queries and keys.
        error: the largest difference between recorded and watched weights in the compared rows.
        texts: one, or two if queries and keys differ.
        sections: titled sections of the texts.
        calls: number of calls.
        first: the head to show first; may be None.
        target: the name of the number that effects are effects on; None without effects.
        all_cells: tokens per cell of each stored map of the mean over all heads; empty if calls
            differ in size.
        digest: the content address.
    """

    format: Literal["regard recording"] = _NAME
    version: Literal[1, 2] = 1
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
    target: _Name | None = None
    all_cells: list[int]
    digest: str = Field(pattern="^[0-9a-f]{16}$|^$")

    @model_validator(mode="after")
    def _sections_are_in_their_texts(self) -> Self:
        for one in self.sections:
            if one.text >= len(self.texts) or one.token >= self.texts[one.text].tokens:
                raise ValueError(f"a section begins at token {one.token} of text {one.text}")
        return self


def max_zoom(queries: int, keys: int) -> int:
    """Return the zoom level at which a cell is one pair; level 0 is one tile.

    >>> max_zoom(8192, 8192), max_zoom(8193, 100), max_zoom(20, 20)
    (5, 6, 0)
    """
    return max(0, (max(queries, keys) - 1).bit_length() - TILE.bit_length() + 1)


def cells_of(max_zoom: int) -> list[int]:
    """Return the tokens per cell of each stored map.

    >>> cells_of(5), cells_of(1)
    ([16, 32], [2])
    """
    coarsest = 2**max_zoom
    return [2**power for power in range(max_zoom + 1) if 2**power >= min(FINEST, coarsest)]


def thumb_of(queries: int, keys: int) -> tuple[int, int]:
    """Return the rows and columns of a thumbnail.

    >>> thumb_of(300, 20)
    (30, 20)
    """
    rows, columns = (-(-size // -(-size // THUMB)) for size in (queries, keys))
    return rows, columns
