"""Sizes that a user hands to a layer."""


def check_positive(**sizes: int) -> None:
    """Raise ValueError unless every size is at least 1; the message names the argument."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def check_share(name: str, share: float) -> None:
    """Raise ValueError unless a share, such as that of dropout, is at least 0 and below 1."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1, got {share}")
