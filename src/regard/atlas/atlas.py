"""`Atlas`: a finished survey, opened."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atlas.about import About
from regard.atlas.extra import needed
from regard.atlas.tables import SCHEMA

if TYPE_CHECKING:
    import pandas

ABOUT, PLAN = "atlas.json", "plan.json"


class Atlas:
    """What every head of a model does, over a corpus: a folder of tables.

    Args:
        path: the folder.

    Raises:
        FileNotFoundError: there is no atlas.
        ValueError: it is not finished, damaged, or of a later version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / ABOUT).exists():
            if (self.path / PLAN).exists():
                raise ValueError(
                    f"{path} is not finished: start the survey again with the same arguments"
                )
            raise FileNotFoundError(f"there is no atlas at {path}: pass the folder of a survey")
        self.about = About.read(self.path / ABOUT)

    def table(self, name: str) -> Any:
        """Return a table of pyarrow: heads, offsets, distances, relations, coreference or examples.

        Raises:
            ValueError: there is no such table, or it is damaged.
        """
        if name not in SCHEMA:
            raise ValueError(f"an atlas has the tables {', '.join(SCHEMA)}, got {name!r}")
        try:
            return needed("pyarrow.parquet").read_table(self.path / f"{name}.parquet")
        except (OSError, ValueError) as error:
            raise ValueError(f"{name}.parquet of {self.path} can't be read ({error})") from error

    def frame(self, name: str) -> "pandas.DataFrame":
        """Return a table as a DataFrame of pandas; names as for `table`."""
        needed("pandas")
        return self.table(name).to_pandas()

    @property
    def heads(self) -> "pandas.DataFrame":
        """A row for each layer and head: its measures and its labels."""
        return self.frame("heads")

    @property
    def offsets(self) -> "pandas.DataFrame":
        """How much each head looks at each offset, key − query."""
        return self.frame("offsets")

    @property
    def distances(self) -> "pandas.DataFrame":
        """How far each head looks."""
        return self.frame("distances")

    @property
    def relations(self) -> "pandas.DataFrame":
        """How well each head finds the other end of each dependency relation."""
        return self.frame("relations")

    @property
    def coreference(self) -> "pandas.DataFrame":
        """How well each head finds an earlier mention of the same."""
        return self.frame("coreference")

    @property
    def examples(self) -> "pandas.DataFrame":
        """A few strong edges of each head, with their text."""
        return self.frame("examples")

    def __repr__(self) -> str:
        about = self.about
        return (
            f"Atlas({str(self.path)!r}: {about.model}, {about.layers} × {about.heads} heads, "
            f"{about.tokens:,} tokens of {about.documents:,} documents)"
        )
