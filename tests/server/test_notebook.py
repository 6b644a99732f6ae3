"""The map in a notebook: one server in the process, shown in a frame."""

from collections.abc import Iterator

import httpx
import pytest

import regard
from regard.server import Map
from tests.server.made import Made


@pytest.fixture
def shown(book: Made) -> Iterator[Map]:
    found = regard.map(book.recording)
    yield found
    found.stop()


def served_by(found: Map) -> list[str]:
    address = found.url.split("#")[0]
    listed = httpx.get(f"{address}recordings.json", trust_env=False).json()["recordings"]
    return [one["digest"] for one in listed]


def test_it_shows_itself(shown: Map, book: Made) -> None:
    assert shown.url.startswith("http://127.0.0.1:")
    assert shown.url.endswith(f"/#recording={book.digest}")
    assert str(shown) == shown.url
    html = shown._repr_html_()
    assert html.startswith("<iframe ")
    assert f'src="{shown.url}"' in html
    assert 'height="720"' in html
    assert served_by(shown) == [book.digest]


def test_one_server_has_all(shown: Map, book: Made, pair: Made) -> None:
    assert served_by(shown) == [book.digest]
    other = regard.map(pair.recording)
    assert other.url.split("#")[0] == shown.url.split("#")[0]
    assert served_by(shown) == [book.digest, pair.digest]
    assert regard.map(book.recording) == shown


def test_it_can_be_stopped_and_started_again(shown: Map, book: Made) -> None:
    shown.stop()
    with pytest.raises(httpx.ConnectError):
        served_by(shown)
    shown.stop()
    again = regard.map(book.recording)
    assert served_by(again) == [book.digest]
    again.stop()
