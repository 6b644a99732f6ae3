"""Fixtures of the tests of models."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def always_one_thread(one_thread: None) -> None:
    """Compute in one thread throughout.

    Even the real models: where something else runs, two threads wait for each other and take five
    times as long.
    """
