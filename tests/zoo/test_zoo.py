"""A sample of the zoo: what is seen of a type is what the type itself says, or is refused."""

import pytest

from zoo.examine import examine
from zoo.sample import SAMPLE

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


@pytest.mark.parametrize("name", SAMPLE)
def test_type(name: str) -> None:
    found = examine(name)
    assert not found.wrong
    assert found.verdict == SAMPLE[name]
    if found.verdict == "refused":
        assert found.reasons


def test_the_sample_has_forty_types() -> None:
    assert len(SAMPLE) == 40
