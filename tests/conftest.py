"""Settings of the whole test run.

``HYPOTHESIS_PROFILE`` chooses how hard the laws are tried: ``default``, ``ci`` (the same examples
in every run; chosen by itself where ``CI`` is set) or ``thorough``.
"""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings
from jaxtyping import config

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)


@pytest.fixture(scope="module")
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
