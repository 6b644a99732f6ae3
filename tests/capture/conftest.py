"""Fixtures of the tests of watching."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard.capture import Seen
from tests.capture.models import Model, inputs


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def seen(model: Model) -> Seen:
    with regard.watch(model) as seen, torch.no_grad():
        model(inputs())
    return seen


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], str]:
    """Register an attention with transformers for the time of a test, and return its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def register(function: Callable[..., Any]) -> str:
        monkeypatch.setitem(AttentionInterface._global_mapping, "own", function)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, "own", sdpa_mask)
        return "own"

    return register


@pytest.fixture(scope="module")
def nothing_registered() -> Iterator[None]:
    """Make sure that no attention stays registered."""
    from transformers import AttentionInterface

    yield
    assert "own" not in AttentionInterface._global_mapping


@pytest.fixture
def no_trace() -> Iterator[None]:
    """Make sure that a test leaves nothing behind."""
    from tests.capture.traces import left_behind

    nothing = nn.Module()
    before = left_behind(nothing)
    assert before["modes"] == []
    assert not before["asked"]
    yield
    assert left_behind(nothing) == before
