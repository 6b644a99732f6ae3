"""Numbers as rounded text."""


def in_figures(number: float, digits: int = 3) -> str:
    """Return a number with some decimals. A positive one is never printed as 0.

    >>> in_figures(0.25), in_figures(0.0), in_figures(2e-9), in_figures(0.004, digits=2)
    ('0.250', '0.000', '<0.001', '<0.01')
    """
    shown = f"{number:.{digits}f}"
    return f"<{10**-digits:g}" if number > 0.0 and float(shown) == 0.0 else shown


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "document"), counted(1200, "token")
    ('1 document', '1,200 tokens')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bar(weight: float, width: int = 10) -> str:
    """Return a weight as a bar of blocks."""
    eighths = round(max(0.0, min(1.0, weight)) * width * 8)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")
