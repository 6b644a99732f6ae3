"""A report as self-contained HTML."""

from collections.abc import Mapping
from typing import Any

from regard.atlas.report.facts import Table, facts_of
from regard.views.one_file import one_file


def report(tables: Mapping[str, Table], about: Mapping[str, Any]) -> str:
    """Return the self-contained HTML report of a survey.

    Args:
        tables: the pyarrow tables of an atlas, by name: heads, and optionally offsets, distances,
            relations, coreference and examples.
        about: the metadata: model, source, tokens, windows, documents, date, versions, skipped
            (counts by reason), and others.

    Raises:
        ValueError: there are no heads.
        FileNotFoundError: the script of the page is not built.
    """
    facts = facts_of(tables, about)
    return one_file(
        "regard.atlas",
        "atlas",
        title=f"{facts['title']} · atlas",
        facts=facts,
        sorry="This report needs JavaScript.",
    )
