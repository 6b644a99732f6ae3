"""Fonts for all scripts.

Characters that matplotlib's font lacks are taken from a few common fonts, if installed; others are
shown as "□". So Chinese, Arabic or an emoji never raises or warns.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import matplotlib.backends.backend_agg

MISSING = "□"
"""Replacement for a character without a glyph."""

_OTHERS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "Arial Unicode MS",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Noto Emoji",
    "Noto Sans Symbols 2",
    "Segoe UI Emoji",
    "Segoe UI Symbol",
)


def families() -> list[str]:
    """Return the fonts, in order of preference."""
    import matplotlib

    chosen: list[str] = matplotlib.rcParams["font.family"]
    return [*chosen, *(name for name in _others() if name not in chosen)]


def drawable(text: str) -> str:
    """Return text with "□" for each character without a glyph."""
    names, generic = tuple(families()), _generic()
    return "".join(char if _is_known(char, names, generic) else MISSING for char in text)


def width_of(text: str, size: float) -> float:
    """Return the width of a text at a font size, both in points."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=families(), size=size)
    # Ten times as large, to reduce rounding to dots.
    font.set_size(10.0 * size)
    return _ruler().get_text_width_height_descent(text, font, ismath=False)[0] / 10.0


def wrapped(parts: list[str], size: float, room: float, *, between: str = " · ") -> str:
    """Wrap parts of a sentence to a width in points."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{between}{part}" if lines else part
        if lines and width_of(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(part)
    return "\n".join(lines)


@cache
def _others() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return tuple(name for name in _OTHERS if name in installed)


def _generic() -> tuple[str, ...]:
    """Return the current fonts of generic families such as "sans-serif"."""
    import matplotlib

    settings: Any = matplotlib.rcParams
    generic = ("serif", "sans-serif", "cursive", "fantasy", "monospace")
    return tuple(name for kind in generic for name in settings[f"font.{kind}"])


@cache
def _is_known(char: str, names: tuple[str, ...], _: tuple[str, ...]) -> bool:
    return any(font.get_char_index(ord(char)) for font in map(_font, names))


def _font(name: str) -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family=[name])))


@cache
def _ruler() -> "matplotlib.backends.backend_agg.RendererAgg":
    """Return a renderer that measures text, at 72 dots per inch: a dot is a point."""
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(1, 1, 72)
