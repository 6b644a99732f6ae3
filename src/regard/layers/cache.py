"""Key–value cache."""

import torch
from jaxtyping import Float
from torch import Tensor


class KeyValueCache:
    """Keys and values of earlier tokens.

    A cache belongs to one attention layer and is passed to each `forward`, which appends the new
    tokens; a sequence may come in chunks of any size.

    Capacity doubles when it runs out. With gradients enabled, new tokens are concatenated to a copy
    instead, because autograd forbids in-place writes.

    >>> import torch
    >>> cache = KeyValueCache()
    >>> key = value = torch.randn(1, 2, 5, 8)
    >>> keys, values = cache.append(key, value)
    >>> keys, values = cache.append(key[:, :, :1], value[:, :, :1])
    >>> len(cache), keys.shape
    (6, torch.Size([1, 2, 6, 8]))
    """

    def __init__(self) -> None:
        self._key: Tensor | None = None
        self._value: Tensor | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(
        self,
        key: Float[Tensor, "batch key_heads new key_dim"],
        value: Float[Tensor, "batch key_heads new value_dim"],
    ) -> tuple[
        Float[Tensor, "batch key_heads keys key_dim"],
        Float[Tensor, "batch key_heads keys value_dim"],
    ]:
        """Append keys and values of new tokens, and return all.

        Args:
            key: [batch, key_heads, new, key_dim].
            value: [batch, key_heads, new, value_dim].

        Returns:
            All keys and values, in order: views that stay valid until `truncate` is called.

        Raises:
            ValueError: shapes, dtypes or devices don't fit the cache.
        """
        if key.shape[2] != value.shape[2]:
            raise ValueError(
                f"value must have as many tokens as key ({key.shape[2]}), got {value.shape[2]}"
            )
        self._key = _extended(self._key, self._length, key, "key")
        self._value = _extended(self._value, self._length, value, "value")
        self._length += key.shape[2]
        return self._key[:, :, : self._length], self._value[:, :, : self._length]

    def with_new(
        self,
        key: Float[Tensor, "batch key_heads new key_dim"],
        value: Float[Tensor, "batch key_heads new value_dim"],
    ) -> tuple[
        Float[Tensor, "batch key_heads keys key_dim"],
        Float[Tensor, "batch key_heads keys value_dim"],
    ]:
        """Return the same as `append` without changing the cache."""
        if self._key is None or self._value is None:
            return key, value
        joined = _joined(self._key, self._length, key, "key")
        return joined, _joined(self._value, self._length, value, "value")

    def truncate(self, length: int) -> None:
        """Drop all tokens but the first `length`."""
        if not 0 <= length <= self._length:
            raise ValueError(f"length must be from 0 to {self._length}, got {length}")
        self._length = length

    def __repr__(self) -> str:
        return f"KeyValueCache({self._length} tokens)"


def _extended(buffer: Tensor | None, length: int, new: Tensor, name: str) -> Tensor:
    """Return the buffer with new vectors after the first `length`."""
    if buffer is None:
        # Copy the first tokens too, so that the caller's tensor is never written to.
        buffer = new[:, :, :0]
    if torch.is_grad_enabled():
        # Earlier calls may need the old buffer for their gradient.
        return _joined(buffer, length, new, name)

    _check(buffer, new, name)
    needed = length + new.shape[2]
    if needed > buffer.shape[2]:
        larger = buffer.new_empty(*buffer.shape[:2], max(needed, 2 * length), buffer.shape[3])
        larger[:, :, :length] = buffer[:, :, :length]
        buffer = larger
    buffer[:, :, length:needed] = new
    return buffer


def _joined(buffer: Tensor, length: int, new: Tensor, name: str) -> Tensor:
    _check(buffer, new, name)
    return torch.cat([buffer[:, :, :length], new], dim=2)


def _check(buffer: Tensor, new: Tensor, name: str) -> None:
    expected = (*buffer.shape[:2], new.shape[2], buffer.shape[3])
    if new.shape != expected:
        raise ValueError(
            f"{name} must have the shape {list(expected)} to fit the cache, got {list(new.shape)}"
        )
    for attribute in ("dtype", "device"):
        cached, added = getattr(buffer, attribute), getattr(new, attribute)
        if cached != added:
            raise ValueError(
                f"{name} must have the {attribute} of the cache ({cached}), got {added}"
            )
