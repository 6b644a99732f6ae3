"""The intersection of optional patterns."""

from regard.patterns.pattern import Pattern


def narrowed(always: Pattern | None, now: Pattern | None) -> Pattern | None:
    """Return `always & now`; None allows every pair."""
    if always is None:
        return now
    return always if now is None else always & now
