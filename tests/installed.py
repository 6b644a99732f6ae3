"""Skips for what the installed transformers lacks, as older versions do."""

import inspect
import sys
from typing import Any

import pytest
import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError

VERSION = f"transformers {transformers.__version__}"


def asks(model: Any) -> bool:
    """Say whether models of a class ask transformers for their attention in this version."""
    return "get_interface(" in inspect.getsource(sys.modules[model.__module__])


def needs_asking(model: Any) -> None:
    """Skip a test if models of a class compute attention by themselves in this version."""
    if not asks(model):
        pytest.skip(f"{model.__name__} of {VERSION} computes attention by itself")


def needs_config(kind: Any) -> None:
    """Skip a test if this version finds fault with its own defaults of a configuration."""
    try:
        kind()
    except StrictDataclassFieldValidationError as error:
        pytest.skip(f"{VERSION} refuses its own {kind.__name__}(): {error}")
