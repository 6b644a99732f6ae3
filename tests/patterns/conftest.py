"""Fixtures of the tests of patterns."""

from collections.abc import Iterator

import pytest
from jaxtyping import config


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switch shape checks off, to see the errors that users see, who run without them."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)
