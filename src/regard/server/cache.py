"""Finished answers, kept while there is room."""

import sys
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import blake2b

DEFAULT_BYTES = 256 * 2**20

_OVERHEAD = 500
"""About so many bytes an entry takes beside its body and its key."""


@dataclass(frozen=True)
class Answer:
    """The bytes of a file, and a short name for them that differs if they differ."""

    body: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, body: bytes, media_type: str) -> "Answer":
        """Return an answer with the name of its bytes."""
        return cls(body, media_type, f'"{blake2b(body, digest_size=12).hexdigest()}"')


class Cache:
    """Keeps the answers that were asked for last, up to a number of bytes.

    It belongs to one event loop and is used in its thread only.

    Args:
        limit: the largest number of bytes. An answer that is larger is not kept.
    """

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.bytes = 0
        self.hits = 0
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: Hashable) -> Answer | None:
        """Return an answer if it is here, and keep it longer."""
        found = self._answers.get(key)
        if found is not None:
            self._answers.move_to_end(key)
            self.hits += 1
        return found

    def put(self, key: Hashable, answer: Answer) -> None:
        """Keep an answer; let those go that were not asked for longest."""
        size = _size(key, answer)
        if size > self.limit:
            return
        before = self._answers.pop(key, None)
        self.bytes += size - (0 if before is None else _size(key, before))
        self._answers[key] = answer
        while self.bytes > self.limit:
            self.bytes -= _size(*self._answers.popitem(last=False))


def _size(key: Hashable, answer: Answer) -> int:
    return _OVERHEAD + len(answer.body) + _size_of_key(key)


def _size_of_key(key: Hashable) -> int:
    """Return the bytes of a key: of what was searched for, it has every word."""
    parts = sum(map(_size_of_key, key)) if isinstance(key, tuple) else 0
    return parts + sys.getsizeof(key)
