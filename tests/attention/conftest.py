"""Fixtures of the tests of attention."""

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import config


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Compute in one thread: on tensors as small as ours, several take three times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switch shape checks off.

    To see the errors that users see, who run without them, and where torch traces our code.
    """
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)
