"""`Atlas`: the results of a survey."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atlas.about import About
from regard.atlas.extra import needed
from regard.atlas.tables import SCHEMA
from regard.views.numbers import counted

if TYPE_CHECKING:
    import pandas

ABOUT, PLAN = "atlas.json", "plan.json"


class Atlas:
    """The results of a survey: a folder of tables.

    Args:
        path: the folder.

    Raises:
        FileNotFoundError: there is no atlas.
        ValueError: it is unfinished, damaged, or of a later version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / ABOUT).exists():
            if (self.path / PLAN).exists():
                raise ValueError(
                    f"{path} is not finished: run the survey again with the same arguments"
                )
            raise FileNotFoundError(
                f"there is no atlas at {path}: pass the output folder of a survey"
            )
        self.about = About.read(self.path / ABOUT)

    def table(self, name: str) -> Any:
        """Return a pyarrow table: heads, offsets, distances, relations, coreference or examples.

        Raises:
            ValueError: there is no such table, or it is damaged.
        """
        if name not in SCHEMA:
            raise ValueError(f"name must be one of {', '.join(SCHEMA)}, got {name!r}")
        try:
            return needed("pyarrow.parquet").read_table(self.path / f"{name}.parquet")
        except (OSError, ValueError) as error:
            raise ValueError(f"can't read {name}.parquet of {self.path}: {error}") from error

    def frame(self, name: str) -> "pandas.DataFrame":
        """Return a table as a DataFrame; names as for `table`."""
        needed("pandas")
        return self.table(name).to_pandas()

    @property
    def heads(self) -> "pandas.DataFrame":
        """Measures and labels of each layer and head."""
        return self.frame("heads")

    @property
    def offsets(self) -> "pandas.DataFrame":
        """Share of attention of each head at each offset, key − query."""
        return self.frame("offsets")

    @property
    def distances(self) -> "pandas.DataFrame":
        """Share of attention of each head in each bin of distances."""
        return self.frame("distances")

    @property
    def relations(self) -> "pandas.DataFrame":
        """Score of each head on each dependency relation."""
        return self.frame("relations")

    @property
    def coreference(self) -> "pandas.DataFrame":
        """Score of each head on coreference."""
        return self.frame("coreference")

    @property
    def examples(self) -> "pandas.DataFrame":
        """A few strong pairs of each head, with their text."""
        return self.frame("examples")

    def __repr__(self) -> str:
        about = self.about
        return (
            f"Atlas({str(self.path)!r}: {about.model}, {about.layers} × {about.heads} heads, "
            f"{counted(about.tokens, 'token')} of {counted(about.documents, 'document')})"
        )
