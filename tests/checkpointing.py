"""Checkpoints of transformers, in any version."""

from typing import Any


def checkpointed(model: Any, **options: Any) -> Any:
    """Let a model compute layers again in the backward pass; return it."""
    # Its name in older versions comes second.
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
    enable = next(getattr(model, name) for name in names if hasattr(model, name))
    enable(options or None)
    return model
