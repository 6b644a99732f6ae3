"""Names and definitions of the measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.atlas.labels import Row, known


@dataclass(frozen=True)
class ReportMeasure:
    """A measure of each head.

    Attributes:
        id: the column of the table of heads.
        name: its display name.
        unit: its unit; "" for a share.
        about: its definition.
        scale: the scale of colours, linear or logarithmic.
    """

    id: str
    name: str
    unit: str
    about: str
    scale: Literal["linear", "log"] = "linear"


MEASURES = (
    ReportMeasure(
        "entropy", "entropy", "nats", "how widely a row of attention is spread: −Σ w log w"
    ),
    ReportMeasure(
        "effective_keys",
        "effective keys",
        "tokens",
        "among how many tokens, equally, such a row would be spread: exp(entropy)",
        "log",
    ),
    ReportMeasure(
        "distance_mean",
        "mean distance",
        "tokens",
        "how far it looks: Σ w |key − query|",
        "log",
    ),
    ReportMeasure(
        "distance_p10", "near distance", "tokens", "a tenth of all attention is nearer", "log"
    ),
    ReportMeasure(
        "distance_p25", "quarter distance", "tokens", "a quarter of all attention is nearer", "log"
    ),
    ReportMeasure(
        "distance_p50", "median distance", "tokens", "half of all attention is nearer", "log"
    ),
    ReportMeasure(
        "distance_p75",
        "three-quarter distance",
        "tokens",
        "three quarters of all attention are nearer",
        "log",
    ),
    ReportMeasure(
        "distance_p90", "far distance", "tokens", "nine tenths of all attention are nearer", "log"
    ),
    ReportMeasure("previous", "previous token", "", "share of attention on the token just before"),
    ReportMeasure("itself", "token itself", "", "share of attention on the token itself"),
    ReportMeasure("next", "next token", "", "share of attention on the token just after"),
    ReportMeasure(
        "first", "first token", "", "share of attention on the first token of the window"
    ),
    ReportMeasure(
        "separators", "separators", "", "share of attention on special tokens and ends of lines"
    ),
    ReportMeasure("punctuation", "punctuation", "", "share of attention on punctuation"),
    ReportMeasure(
        "same_token",
        "same token",
        "",
        "share of attention on earlier copies of the token, over rows that have one",
    ),
    ReportMeasure(
        "induction",
        "induction",
        "",
        "share of attention on the tokens that came just after earlier copies of the token, over "
        "rows that have one",
    ),
    ReportMeasure(
        "repeats_induction",
        "induction on repeats",
        "",
        "the same on random tokens that are repeated twice, where nothing but copying helps",
    ),
    ReportMeasure(
        "sink_first",
        "first token as sink",
        "",
        "share of windows in which the first token gets more than 0.3 of each row that can see it, "
        "on average",
    ),
    ReportMeasure(
        "sinks", "sinks", "tokens", "how many tokens of a window are such sinks, on average"
    ),
    ReportMeasure(
        "received_top",
        "most received",
        "",
        "the largest mean weight that a token gets from the rows that can see it, on average over "
        "windows",
    ),
    ReportMeasure(
        "effect",
        "effect",
        "nats",
        "size of the effect on the mean log-probability of the next token, by gradient, on average "
        "over windows",
        "log",
    ),
)
"""All measures, in the order of menus. Those without a unit are shares of attention, 0 to 1; means
over rows by default."""


def measures_in(heads: Sequence[Row]) -> list[ReportMeasure]:
    """Return the measures of a survey: the effect only if it was measured."""
    has_effects = any(known(row.get("effect")) is not None for row in heads)
    return [measure for measure in MEASURES if measure.id != "effect" or has_effects]
