"""Recordings that the tests of the server share."""

from collections.abc import Iterator

import pytest

from tests.server.made import Made, made_book, made_pair
from tests.server.running import Running, served


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
