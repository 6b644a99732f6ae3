"""Many viewers at once, who pan, zoom and move on."""

import pytest

from benchmarks._map_load import load
from tests.server.made import Made
from tests.server.running import served

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_thirty_two_viewers(book: Made) -> None:
    with served(book.recording, cache_bytes=2_000_000) as running:
        found = load(running.url, viewers=32, seconds=5)
        assert found["faults"] == []
        assert found["errors"] == 0
        assert found["requests"] > 100
        # After all of them have gone, nothing is left behind.
        assert running.work.num_waiting == 0
        assert running.service.cache.bytes <= 2_000_000
