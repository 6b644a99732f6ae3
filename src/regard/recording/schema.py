"""What a recording says of itself, checked when it is opened.

`docs/reference/recording-format.md` describes it for readers of the files.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1
TILE = 256
"""A tile, and a chunk of a stored map, has so many cells along each axis."""

_NAME = "regard recording"


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

    name: str
    tokens: int = Field(ge=1)
    characters: int = Field(ge=0)
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

    index: int = Field(ge=0)
    module: str
    looks: Literal["self", "cross"]
    layer: str
    group: str
    heads: int = Field(ge=1)
    key_heads: int = Field(ge=1)
    queries: int = Field(ge=1)
    keys: int = Field(ge=1)
    key_dim: int = Field(ge=0)
    stored: Literal["scores", "weights"]
    dtype: Literal["float16", "bfloat16", "float32", "float64"]
    scale: float
    first_position: int | None
    query_text: int = Field(ge=0)
    key_text: int = Field(ge=0)
    pattern: dict[str, Any]
    bias: dict[str, Any] | None
    sinks: list[float] | None
    cells: list[int]
    thumb: tuple[int, int]
    measures: dict[str, list[float | None]]
    error: float = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")

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
    title: str
    model: str
    date: str
    versions: dict[str, str]
    dtype: str
    error: float = Field(ge=0)
    texts: list[TextFacts] = Field(min_length=1, max_length=2)
    sections: list[Section]
    calls: int = Field(ge=0)
    first: FirstHead | None = None
    all_cells: list[int]
    digest: str = Field(pattern="^[0-9a-f]{16}$|^$")


def max_zoom(queries: int, keys: int) -> int:
    """Return at which level a cell of the map is one pair; at level 0 one tile has all of it.

    >>> max_zoom(8192, 8192), max_zoom(8193, 100), max_zoom(20, 20)
    (5, 6, 0)
    """
    return max(0, (max(queries, keys) - 1).bit_length() - TILE.bit_length() + 1)
