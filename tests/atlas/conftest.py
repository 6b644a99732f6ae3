"""A small model to survey with."""

from pathlib import Path

import pytest

from regard.atlas import Loader
from tests.atlas.surveying import exact, small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def loader(model: Path) -> Loader:
    return exact(model)
