"""Many viewers at once, who pan, zoom and move on."""

import pytest

from benchmarks._map_attack import attacked
from benchmarks._map_load import load
from tests.server.made import Made
from tests.server.running import served

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

VIEWERS = 32


def test_thirty_two_viewers(book: Made) -> None:
    with served(book.recording, cache_bytes=2_000_000) as running:
        found = load(running.url, VIEWERS, seconds=5)
        assert found["faults"] == []
        assert found["errors"] == 0
        assert found["requests"] + found["left"] >= VIEWERS
        # After all of them have gone, nothing is left behind.
        assert running.work.num_waiting == 0
        assert running.service.cache.bytes <= 2_000_000


def test_a_viewer_under_attack(book: Made) -> None:
    """Of 300 strangers who send nothing, slowly, too much or what is wrong, a viewer sees nothing.

    How long tiles take meanwhile is in `python -m benchmarks map`.
    """
    with served(book.recording, token="a-secret") as running, attacked(running.url):
        assert load(running.url, 1, seconds=2)["faults"] == []
        found = load(running.url, 1, seconds=5)
        assert found["faults"] == []
        assert found["requests"] + found["left"] > 0


@pytest.mark.thorough
def test_for_ten_minutes(book: Made, pair: Made) -> None:
    """Memory does not grow with what was asked: not by a megabyte for ten that were answered."""
    with served(book.recording, pair.recording, cache_bytes=2_000_000) as running:
        load(running.url, VIEWERS, seconds=60)
        found = load(running.url, VIEWERS, seconds=600)
        assert found["faults"] == []
        assert found["rss_after"] - found["rss_before"] < found["megabytes"] / 10
        assert running.work.num_waiting == 0
        assert running.service.cache.bytes <= 2_000_000
