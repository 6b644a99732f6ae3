"""Argument checks that many places need, and what an error says."""

from collections.abc import Iterable


def check_positive(**sizes: int) -> None:
    """Raise ValueError unless every size is at least 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def check_share(name: str, share: float) -> None:
    """Raise ValueError unless a share, such as dropout, is at least 0 and below 1."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1, got {share}")


def check_choice(name: str, chosen: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless `chosen` is one of the choices."""
    choices = list(choices)
    if chosen not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f'{name} must be one of {listed}, got "{chosen}"')


def first_line(error: Exception) -> str:
    """Return the first line of an error, or its type if it says nothing."""
    return str(error).split("\n")[0] or type(error).__name__
