"""The tables of refused interventions have the messages of the code, and all of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "regard"
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Interventions", 1)[1].split("\n## ", 1)[0]
ROWS = [line for line in SECTION.splitlines() if line.startswith("| `")]
MESSAGES = [text for row in ROWS for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def _parts(node: ast.AST) -> list[str]:
    """Return the parts of a string between its placeholders."""
    parts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    return [part.strip(": ") for part in parts if isinstance(part, str)]


def _trees(*folders: str) -> Iterator[ast.AST]:
    for folder in folders:
        for path in sorted(SOURCE.glob(folder)):
            yield ast.parse(path.read_text(encoding="utf-8"))


def test_each_message_is_in_the_code() -> None:
    strings = [
        part
        for tree in _trees("capture/*.py", "interventions/*.py", "distributed/*.py")
        for part in _parts(tree)
    ]
    strings += [part for tree in _trees("internals.py") for part in _parts(tree)]
    assert len(MESSAGES) > 40
    for message in MESSAGES:
        fragments = [part.strip(": ()") for part in re.split(r"(?<!jacrev, )…", message)]
        for fragment in filter(None, fragments):
            assert any(fragment in string for string in strings), message


def test_each_refusal_of_the_code_is_in_a_table() -> None:
    calls = [
        node
        for tree in _trees("interventions/*.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (ast.unparse(node.func) in ("self.refuse", "UnreadableError"))
    ]
    refusals = [part for call in calls for part in _parts(call.args[-1]) if len(part) > 10]
    assert len(refusals) > 15
    for refusal in refusals:
        # Advice behind a colon may be left out.
        assert any(refusal.split(": ")[0] in message for message in MESSAGES), refusal
