"""Fixtures of the tests of the attention matrix."""

from collections.abc import Iterator

import pytest

from regard.matrix import scores


@pytest.fixture(autouse=True, scope="module")
def always_one_thread(one_thread: None) -> None:
    """Compute in one thread throughout."""


@pytest.fixture(autouse=True, scope="module")
def bounds_of_few_scores() -> Iterator[None]:
    """Bound the scores of small matrices too, as only those of large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "_MANY", 1)
        patch.setattr(scores, "_MANY_PAIRS", 1)
        yield
