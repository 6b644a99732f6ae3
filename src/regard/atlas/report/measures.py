"""What is measured of each head, in words."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """A number for each head.

    Attributes:
        id: the column of the table of heads.
        name: what it is called.
        unit: what it is counted in, "" for a share.
        about: how it is defined.
        scale: how colours are spread: over values, or over their logarithms where few heads would
            take all colours.
    """

    id: str
    name: str
    unit: str
    about: str
    scale: Literal["linear", "log"] = "linear"


MEASURES = (
    Measure("entropy", "entropy", "nats", "how widely a row of attention is spread: −Σ w log w"),
    Measure(
        "effective_keys",
        "effective keys",
        "tokens",
        "among how many tokens, equally, such a row would be spread: exp(entropy)",
        "log",
    ),
    Measure(
        "distance_mean",
        "mean distance",
        "tokens",
        "how far it looks: Σ w |key − query|",
        "log",
    ),
    Measure("distance_p10", "near distance", "tokens", "a tenth of all attention is nearer", "log"),
    Measure(
        "distance_p25", "quarter distance", "tokens", "a quarter of all attention is nearer", "log"
    ),
    Measure("distance_p50", "median distance", "tokens", "half of all attention is nearer", "log"),
    Measure(
        "distance_p75",
        "three-quarter distance",
        "tokens",
        "three quarters of all attention are nearer",
        "log",
    ),
    Measure(
        "distance_p90", "far distance", "tokens", "nine tenths of all attention are nearer", "log"
    ),
    Measure("previous", "previous token", "", "share of attention on the token just before"),
    Measure("itself", "token itself", "", "share of attention on the token itself"),
    Measure("next", "next token", "", "share of attention on the token just after"),
    Measure("first", "first token", "", "share of attention on the first token of the window"),
    Measure(
        "separators", "separators", "", "share of attention on special tokens and ends of lines"
    ),
    Measure("punctuation", "punctuation", "", "share of attention on punctuation"),
    Measure(
        "same_token",
        "same token",
        "",
        "share of attention on earlier copies of the token, over rows that have one",
    ),
    Measure(
        "induction",
        "induction",
        "",
        "share of attention on the tokens that came just after earlier copies of the token, over "
        "rows that have one",
    ),
    Measure(
        "repeats_induction",
        "induction on repeats",
        "",
        "the same on random tokens that are repeated twice, where nothing but copying helps",
    ),
    Measure(
        "sink_first",
        "first token as sink",
        "",
        "share of windows in which the first token gets more than 0.3 of each row that can see it, "
        "on average",
    ),
    Measure("sinks", "sinks", "tokens", "how many tokens of a window are such sinks, on average"),
    Measure(
        "received_top",
        "most received",
        "",
        "the largest mean weight that a token gets from the rows that can see it, on average over "
        "windows",
    ),
)
"""All measures, in the order of menus. Those without a unit are shares of attention, 0 to 1, and
means over rows if nothing else is said."""
