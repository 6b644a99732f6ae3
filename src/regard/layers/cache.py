"""What attention has already seen."""

import torch
from jaxtyping import Float
from torch import Tensor


class KeyValueCache:
    """Keep the keys and values of earlier tokens, so that new tokens need not compute them again.

    A cache belongs to one attention layer. It is handed to `forward`, which looks at everything in
    it and adds what is new; a sequence may be fed in pieces of any size.

    Room is doubled when it runs out, so that n tokens fed one by one are copied about twice. With
    gradients switched on, what is new is joined to a copy instead, because nothing may be written
    over then.

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
        """Add keys and values, and return all there are.

        Args:
            key: keys of the new tokens, [batch, key_heads, new, key_dim].
            value: their values, [batch, key_heads, new, value_dim].

        Returns:
            All keys and all values, in order. They are views: what they show of these tokens
            stays as it is until `truncate` is called.

        Raises:
            ValueError: they don't fit to what is there.
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
        """Return what `append` would return, and leave the cache as it is."""
        if self._key is None or self._value is None:
            return key, value
        joined = _joined(self._key, self._length, key, "key")
        return joined, _joined(self._value, self._length, value, "value")

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first `length`.

        Raises:
            ValueError: there are fewer.
        """
        if not 0 <= length <= self._length:
            raise ValueError(f"length must be from 0 to {self._length}, got {length}")
        self._length = length

    def __repr__(self) -> str:
        return f"KeyValueCache({self._length} tokens)"


def _extended(room: Tensor | None, length: int, new: Tensor, name: str) -> Tensor:
    """Return the room with new vectors behind the first `length` ones."""
    if room is None:
        # Copied like all that follows: nobody else's tensor is written to later.
        room = new[:, :, :0]
    if torch.is_grad_enabled():
        # Whatever looked at the room may need it as it was for its gradient.
        return _joined(room, length, new, name)
    _check(room, new, name)
    needed = length + new.shape[2]
    if needed > room.shape[2]:
        more = room.new_empty(*room.shape[:2], max(needed, 2 * length), room.shape[3])
        more[:, :, :length] = room[:, :, :length]
        room = more
    room[:, :, length:needed] = new
    return room


def _joined(room: Tensor, length: int, new: Tensor, name: str) -> Tensor:
    _check(room, new, name)
    return torch.cat([room[:, :, :length], new], dim=2)


def _check(room: Tensor, new: Tensor, name: str) -> None:
    expected = (*room.shape[:2], new.shape[2], room.shape[3])
    if new.shape != expected:
        raise ValueError(
            f"{name} must have the shape {list(expected)} to follow what is in the cache, "
            f"got {list(new.shape)}"
        )
    for what in ("dtype", "device"):
        there, here = getattr(room, what), getattr(new, what)
        if there != here:
            raise ValueError(
                f"{name} must have the {what} of what is in the cache ({there}), got {here}"
            )
