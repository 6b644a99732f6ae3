"""A report as HTML: one file, with nothing in it that comes from elsewhere."""

from collections.abc import Mapping
from typing import Any

from regard.atlas.report.facts import Table, facts_of
from regard.views.one_file import one_file


def report(tables: Mapping[str, Table], about: Mapping[str, Any]) -> str:
    """Return a survey as a page to look at in a browser, whole in itself.

    Args:
        tables: the tables of an atlas, of pyarrow, by name: heads, and if they are known offsets,
            distances, relations, coreference and examples.
        about: what is known of the survey: model, source, tokens, windows, documents, date,
            versions, skipped (how often something was, by reason), and whatever else.

    Raises:
        ValueError: there are no heads.
        FileNotFoundError: the script of the page was not built.
    """
    facts = facts_of(tables, about)
    return one_file(
        "regard.atlas",
        "atlas",
        title=f"{facts['title']} · atlas",
        facts=facts,
        sorry="This report shows its tables with the help of JavaScript.",
    )
