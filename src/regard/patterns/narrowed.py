"""What is allowed always, and what is allowed now."""

from regard.patterns.pattern import Pattern


def narrowed(always: Pattern | None, now: Pattern | None) -> Pattern | None:
    """Return the pattern of who may look always and now too; None stands for everyone."""
    if always is None:
        return now
    return always if now is None else always & now
