"""The page of the atlas' tables has every column of every table, with its type."""

import re
from pathlib import Path

from regard.atlas.tables import SCHEMA

COLUMN = re.compile(r"^\| `(\w+)` \| ([\w ]+) \| \S", re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "atlas-tables.md"

TYPES = {
    "int": "int64",
    "float": "float64",
    "text": "string",
    "texts": "list of string",
    "flag": "bool",
}


def test_the_page_has_all_columns() -> None:
    _, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    described = {section.partition("\n")[0]: COLUMN.findall(section) for section in sections}
    assert described == {
        table: [(column, TYPES[kind]) for column, kind in columns.items()]
        for table, columns in SCHEMA.items()
    }
