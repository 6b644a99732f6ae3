"""The requests that were seen in a serving engine."""

from collections.abc import Iterator, Mapping

from regard.calls.call import AttentionCall
from regard.watch import table
from regard.watch.seen import Seen


class SeenRequests(Mapping[str, Seen]):
    """The requests of a watched engine by their ids, in the order in which they ended.

    `seen.requests["3"]` is what `watch` gives for a model: one call for each layer. The matrix of a
    call has a column for each token of the request but the last, which was generated and never fed
    to the model, and a row for each of these that the engine computed: those of a prefix that it
    found in its cache have none.
    """

    def __init__(self) -> None:
        self._requests: dict[str, Seen] = {}

    def add(self, name: str, calls: list[AttentionCall]) -> None:
        """Add a request that has ended."""
        self._requests[name] = Seen(calls)

    def __getitem__(self, name: str) -> Seen:
        """Return the calls of a request.

        Raises:
            KeyError: there is no such request, or it has not ended.
        """
        if name not in self._requests:
            some = ", ".join(map(repr, list(self)[:3])) + (", …" if len(self) > 3 else "")
            raise KeyError(
                f"no request {name!r} has ended while the engine was watched, only "
                f"{some or 'none'}. Ids are those of its outputs, output.request_id; all requests "
                "are there when the block has ended"
            )
        return self._requests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        lines = [f"{len(self)} requests"]
        for name, seen in list(self.items())[: table.MOST]:
            first = seen[0]
            wrong = sum(table.failed(call) for call in seen)
            state = f"{wrong} of them wrong" if wrong else f"check {max(map(_gap, seen)):.0e}"
            lines.append(f"{name}: {len(seen)} calls, {first.queries:,} × {first.keys:,}, {state}")
        if len(self) > table.MOST:
            lines.append(f"⋮ {len(self) - table.MOST:,} more")
        return "\n".join(lines)


class SeenEngine:
    """What was seen of an engine.

    Attributes:
        requests: the requests that have ended, by their ids.
    """

    def __init__(self) -> None:
        self.requests = SeenRequests()

    def verify(self) -> None:
        """Make sure that what was seen is what was computed: every request, or it raises.

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
