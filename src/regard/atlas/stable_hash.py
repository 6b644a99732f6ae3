"""Random numbers from names, independent of order and process."""

import hashlib


def drawn(name: str, seed: int) -> int:
    """Return a random integer below 2⁶⁴ for a name."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")
