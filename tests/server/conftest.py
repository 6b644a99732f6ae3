"""Recordings, servers of them, and a browser that the tests of the server share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.made import Made, made_book, made_pair
from tests.server.running import Running, served
from tests.server.viewing import Viewing, chromium


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two causal calls of three heads over 600 tokens, some of them hostile."""
    return made_book(tmp_path_factory.mktemp("recordings") / "book.regard")


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A call of two heads that looks from 300 tokens at 40 others."""
    return made_pair(tmp_path_factory.mktemp("recordings") / "pair.regard")


@pytest.fixture(scope="module")
def running(book: Made, pair: Made) -> Iterator[Running]:
    """A server of both."""
    with served(book.recording, pair.recording) as found:
        yield found


@pytest.fixture(scope="module")
def url(book: Made, pair: Made) -> Iterator[str]:
    """Where both are served as they are to people, packed."""
    with served(book.recording, pair.recording, static=None) as running:
        yield running.url


# Not for longer: one process can drive one browser at a time, and other folders have theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium, with WebGL in software."""
    with chromium() as found:
        yield found


@pytest.fixture
def viewing(browser: Any) -> Iterator[Viewing]:
    """Maps opened in it; at the end, see that nothing went wrong."""
    found = Viewing(browser)
    yield found
    found.close()
