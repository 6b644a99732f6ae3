"""Chance that is the same whenever, wherever and in whatever order something is read."""

import hashlib


def drawn(name: str, seed: int) -> int:
    """Return a whole number from 0 up to 2⁶⁴ that a name draws."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")
