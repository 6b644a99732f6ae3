"""The context manager that `watch` returns."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

Seen = TypeVar("Seen")

_NOT_ENTERED = (
    "regard.watch is a context manager: write `with regard.watch(model) as seen:`, call the model "
    "inside the block, and use `seen`"
)


class WatchContext(AbstractContextManager[Seen, bool | None], Generic[Seen]):
    """A context manager that watches a model; reusable, each time with a new `Seen`.

    Using it without `with` raises an error that explains it.

    Args:
        watching: returns the context manager of one run.
    """

    def __init__(self, watching: Callable[[], AbstractContextManager[Seen, bool | None]]) -> None:
        self._watching = watching
        self._entered: list[AbstractContextManager[Seen, bool | None]] = []

    def __enter__(self) -> Seen:
        entered = self._watching()
        seen = entered.__enter__()
        self._entered.append(entered)
        return seen

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._entered.pop().__exit__(kind, error, trace)

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
