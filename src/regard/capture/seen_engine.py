"""The watched requests of a serving engine."""

from collections.abc import Iterator, Mapping

from regard.calls.call import AttentionCall
from regard.capture import table
from regard.capture.seen import Seen


class SeenRequests(Mapping[str, Seen]):
    """The finished requests of a watched engine by id, in order.

    `seen.requests["3"]` is a `Seen` with one call for each layer. The matrix of a call has a column
    for each token except the last generated one, which was never an input, and a row for each of
    these except those of a cached prefix.
    """

    def __init__(self) -> None:
        self._requests: dict[str, Seen] = {}

    def add(self, name: str, calls: list[AttentionCall]) -> None:
        """Add a finished request."""
        self._requests[name] = Seen(calls)

    def __getitem__(self, name: str) -> Seen:
        """Return the calls of a request.

        Raises:
            KeyError: there is no such request, or it is not finished.
        """
        if name not in self._requests:
            some = ", ".join(map(repr, list(self)[:3])) + (", …" if len(self) > 3 else "")
            raise KeyError(
                f"there is no finished request {name!r}, only {some or 'none'}. Ids are "
                "output.request_id; all requests are finished after the block"
            )
        return self._requests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        lines = [f"{len(self):,} request{'' if len(self) == 1 else 's'}"]
        for name, seen in list(self.items())[: table.MOST]:
            first = seen[0]
            wrong = sum(table.failed(call) for call in seen)
            state = f"{wrong} of them wrong" if wrong else f"check {max(map(_gap, seen)):.0e}"
            lines.append(f"{name}: {len(seen)} calls, {first.queries:,} × {first.keys:,}, {state}")
        if len(self) > table.MOST:
            lines.append(f"⋮ {len(self) - table.MOST:,} more")
        return "\n".join(lines)


class SeenEngine:
    """The watched requests of an engine.

    Attributes:
        requests: the finished requests by id.
    """

    def __init__(self) -> None:
        self.requests = SeenRequests()

    def verify(self) -> None:
        """Raise unless every call was compared with the kernel's output, and agrees.

        Raises:
            RuntimeError: as `Seen.verify`, with the id of the request.
        """
        for name, seen in self.requests.items():
            try:
                seen.verify()
            except RuntimeError as error:
                raise RuntimeError(f"request {name}: {error}") from None

    def __repr__(self) -> str:
        return repr(self.requests)


def _gap(call: AttentionCall) -> float:
    return call.check.gap or 0.0
