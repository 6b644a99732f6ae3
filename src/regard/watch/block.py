"""What `watch` returns: a block in which a model is watched."""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn

from regard.watch.seen import Seen

_NOT_ENTERED = (
    "nothing is watched yet: write `with regard.watch(model) as seen:`, call the model inside the "
    "block, and look at `seen`"
)


class Block(AbstractContextManager[Seen, bool | None]):
    """A block in which a model is watched, for `with`.

    Whoever forgets the `with` and takes it for what was seen is told so.
    """

    def __init__(self, watching: AbstractContextManager[Seen, bool | None]) -> None:
        self._watching = watching

    def __enter__(self) -> Seen:
        return self._watching.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._watching.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{_NOT_ENTERED}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(_NOT_ENTERED)

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(_NOT_ENTERED)

    def __len__(self) -> NoReturn:
        raise TypeError(_NOT_ENTERED)

    def __iter__(self) -> NoReturn:
        raise TypeError(_NOT_ENTERED)
