"""Colours of signed numbers, such as effects: orange below 0, blue above, grey at 0.

Blue and orange are told apart by all kinds of colour-blind readers. Both ends are equally light.
"""

LIGHT = ("#b84e00", "#eb9a4c", "#f8d9b6", "#f0f1ef", "#c6dcf9", "#7aaef2", "#2a69c4")
"""From the lowest to the highest on a light background."""

DARK = ("#ffb465", "#c4731d", "#663c14", "#262a33", "#1c3f74", "#3a78d2", "#9dc5ff")
"""The same on a dark background."""
