"""How docstrings become pages: extensions of griffe, which reads and imports nothing."""

import re
from typing import Any

from griffe import Alias, Extension, Module, Object

# From a prompt to the next empty line that no further prompt follows.
EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?!\s*$).*|\n+(?=\1>>> ))*", re.MULTILINE)

# What examples say to doctest.
FLAG = re.compile(r" *# doctest: .*| *<BLANKLINE>")


class Examples(Extension):
    """Fence the examples that stand among the text, which Markdown would take for quotations."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Fence the examples of one object."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


class Exports(Extension):
    """Let `regard.attend` be the function, as it is in Python, and not the file that it is from."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Point all exports at what they are, found first: pointing changes how to find them."""
        rooms = [pkg, *pkg.modules.values()]
        found = [
            (room, name, _exported(pkg, room, name))
            for room in rooms
            for name in map(str, room.exports or ())
            if room.imports.get(name, "").startswith("regard.")
        ]
        for room, name, obj in found:
            room.members[name] = Alias(name, obj, parent=room)


def _exported(package: Module, room: Any, name: str) -> Any:
    """Return what a name means in a room, through all imports on the way."""
    if name not in room.imports:
        return room.members[name]
    *path, name = room.imports[name].split(".")[1:]
    where: Any = package
    for part in path:
        where = where.members[part]
    return _exported(package, where, name)


def _fenced(found: re.Match[str]) -> str:
    return f"{found['indent']}```pycon\n{FLAG.sub('', found[0])}\n{found['indent']}```"
