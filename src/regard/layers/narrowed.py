"""What a layer always allows, and what one call of it allows."""

from regard.patterns import Pattern


def narrowed(always: Pattern | None, now: Pattern | None) -> Pattern | None:
    """Return the pattern of who may look always and now too; None stands for everyone."""
    if always is None:
        return now
    return always if now is None else always & now
