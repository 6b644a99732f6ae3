"""Fixtures of the tests of the attention matrix."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def always_one_thread(one_thread: None) -> None:
    """Compute in one thread throughout."""
