"""Detect in-place modification of tensors."""

from collections.abc import Iterable

from torch import Tensor


class Overwritten(RuntimeError):
    """A tensor was modified in place after its values were used."""


class Versions:
    """The current versions of some tensors.

    PyTorch counts no writes to inference tensors, nor through `tensor.data` or NumPy, so these are
    not detected.

    Args:
        tensors: each with its name in error messages.
    """

    def __init__(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._tensors = [(name, tensor) for name, tensor in tensors if not tensor.is_inference()]
        self._versions = [tensor._version for _, tensor in self._tensors]

    def modified(self) -> str | None:
        """Return the name of a tensor modified since, or None."""
        for (name, tensor), version in zip(self._tensors, self._versions, strict=True):
            if tensor._version != version:
                return name
        return None

    def __reduce__(self) -> tuple[type["Versions"], tuple[list[tuple[str, Tensor]]]]:
        # Copies have versions of their own.
        if (name := self.modified()) is not None:
            raise Overwritten(f"{name} was modified in place, so it can't be copied or pickled")
        return Versions, (self._tensors,)
