"""A cache of responses."""

import sys
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import blake2b

DEFAULT_BYTES = 256 * 2**20

_OVERHEAD = 500
"""Approximate bytes of an entry without body and key."""


@dataclass(frozen=True)
class Answer:
    """The bytes of a file, with media type and ETag."""

    body: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, body: bytes, media_type: str) -> "Answer":
        """Return an answer with the ETag of its bytes."""
        return cls(body, media_type, f'"{blake2b(body, digest_size=12).hexdigest()}"')


class Cache:
    """A least-recently-used cache of answers, bounded in bytes.

    Not thread-safe: use it in the thread of one event loop.

    Args:
        limit: maximum bytes; larger answers are not cached.
    """

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.bytes = 0
        self.hits = 0
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: Hashable) -> Answer | None:
        """Return a cached answer, and mark it as used."""
        found = self._answers.get(key)
        if found is not None:
            self._answers.move_to_end(key)
            self.hits += 1
        return found

    def put(self, key: Hashable, answer: Answer) -> None:
        """Add an answer, and evict the least recently used ones."""
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
    """Return the bytes of a key, which may contain a search text."""
    parts = sum(map(_size_of_key, key)) if isinstance(key, tuple) else 0
    return parts + sys.getsizeof(key)
