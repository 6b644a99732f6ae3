"""The tables of the README and the guides: which figures they show, and in which words.

In a cell, `[name of a figure]` stands for its value and unit, and `[one | other | third]` for the
range of several. A page shows a table where it has these two lines, what is between them being
written by `python -m benchmarks`:

    <!-- benchmarks:NAME OF THE TABLE -->
    <!-- end -->
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks._measure import Figure


@dataclass(frozen=True)
class Table:
    """A table that is made from the figures of one benchmark, or of several.

    Attributes:
        benchmark: its name, or their names.
        head: the words above the columns.
        rows: the cells of each row.
        words: what is said below.
    """

    benchmark: str | tuple[str, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: str = ""

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The names of its benchmarks."""
        return (self.benchmark,) if isinstance(self.benchmark, str) else self.benchmark


def levels(what: str, first: int, last: int) -> str:
    """Return the cell with the times that 95 of 100 tiles took, at some levels of a map."""
    names = (f"{what}, level {level}, p95" for level in range(first, last + 1))
    return f"[{' | '.join(names)}]"


def page_row(label: str, text: str) -> tuple[str, ...]:
    """Return the row of a page of ours."""
    return (
        label,
        f"[{text}: size of the page]",
        f"[{text}: model run and page made]",
        f"[{text}: memory beyond the model]",
        f"[{text}: until it is open, network off]",
    )


def bertviz_row(text: str) -> tuple[str, ...]:
    """Return the row of BertViz for the same text."""
    _, *cells = page_row("", f"BertViz, {text}")
    cells[-1] = f"[BertViz, {text}: until it is open]"
    return ("the same, BertViz", *cells)


WINDOW = "window of 256 at 16,384"
SPARSE = "64 near and every 64th at 16,384"
MILLION = "window of 256 at 1,048,576, one head, forward"
LAYER = "layer, a window of 256 at 8,192"
FIVE = "five summaries at"

RING, FAR = "65,536 tokens, 4 ranks:", "1,048,576 tokens, 64 ranks:"


def ring_row(name: str) -> tuple[str, ...]:
    """Return the row of a pattern."""
    words = {
        "window": "`causal() & window(before=255)`",
        "columns": "the same or `columns(every=256)`",
        "documents": "`causal()` in documents of 10,000 tokens",
        "causal": "`causal()`",
    }
    near, far = f"{name} 65,536 on 4 ranks", f"{name} 1,048,576 on 64 ranks"
    return (
        words[name],
        f"[{near}: bytes sent, of a full ring's]",
        f"[{near}: busiest rank over the mean]",
        f"[{far}: bytes that a rank receives]",
        f"[{far}: pairs of a head that a rank computes] pairs",
        f"[{far}: time to plan what a rank computes]",
    )


def patching_row(part: str) -> tuple[str, ...]:
    """Return the row of a part of heads."""
    changes = (f"[{part} of {head}: change]" for head in ("23.3", "24.4", "17.4"))
    return (f'`"{part}"`', *changes, f"[{part} of a head, over bare]")


def steer_row(strength: str) -> tuple[str, ...]:
    """Return the row of a strength of steering."""
    return (
        f"`{strength.replace(' ', '=')}`",
        f"[240 tokens, {strength}: follow, of 240]",
        f"[2,700 tokens, {strength}: follow, of 24]",
        f"[loss on other text, {strength}, over none]",
    )


def effects_row(words: str, how: str) -> tuple[str, ...]:
    """Return the row of a way to find the effects of heads."""
    targets = ("repeated tokens", "Berlin over Paris", "a text")
    names = ("Spearman", "recall of the 20 strongest", "cost in forward passes")
    if how == "exact":
        names = names[2:]
    elif how != "gradient" and how != "integrated":
        names = names[1:]
    cells = [f"[{' | '.join(f'{one}, {how}: {name}' for one in targets)}]" for name in names]
    return (words, *("" for _ in range(3 - len(cells))), *cells)


TABLES = {
    "readme": Table(
        ("attend", "watch", "matrix", "map"),
        ("on two CPU cores", ""),
        (
            (
                "causal attention at 8,192, forward and backward, over PyTorch's own kernel",
                "[causal 8,192 both passes: time over bare SDPA]",
            ),
            (
                "a window of 256 at 16,384, forward and backward, faster than causal attention",
                f"[{WINDOW} both passes: faster than causal SDPA]",
            ),
            (
                "SmolLM2 watched at 2,048 tokens, over a bare forward pass; eager attention with "
                "`output_attentions=True`",
                "[watched, checks included, over bare]; [eager with output_attentions, over bare]",
            ),
            (
                "five summaries of 4 heads at 32,768: memory; the matrices",
                f"[{FIVE} 32,768, 4 heads: peak extra memory]; "
                f"[{FIVE} 32,768, 4 heads: the dense matrices]",
            ),
            (
                "a tile of 256 × 256 of a matrix of 1,048,576 × 1,048,576",
                "[a tile at 1,048,576: time]",
            ),
            (
                "a tile of the map of a book, 8,192 tokens and 270 heads, 95 of 100 in less than",
                levels("book: tile of a head", 0, 5),
            ),
        ),
    ),
    "attend": Table(
        "attend",
        ("", "forward", "both passes"),
        (
            (
                "bare causal `scaled_dot_product_attention` at 8,192, time over itself: the noise",
                "[causal SDPA 8,192 forward: time over itself]",
                "[causal SDPA 8,192 both passes: time over itself]",
            ),
            (
                "`causal()` at 8,192, time over bare `scaled_dot_product_attention`",
                "[causal 8,192 forward: time over bare SDPA] (same kernel)",
                "[causal 8,192 both passes: time over bare SDPA]",
            ),
            (
                "a window of 256 at 16,384, faster than causal `scaled_dot_product_attention`",
                f"[{WINDOW} forward: faster than causal SDPA]",
                f"[{WINDOW} both passes: faster than causal SDPA]",
            ),
            (
                "the same, faster than compiled FlexAttention with the same mask",
                f"[{WINDOW} forward: faster than FlexAttention]",
                "it has no backward on the CPU",
            ),
            (
                "the same, faster than `local-attention` with the same mask",
                f"[{WINDOW} forward: faster than local-attention]",
                f"[{WINDOW} both passes: faster than local-attention]",
            ),
            (
                "64 near and every 64th at 16,384, faster than causal "
                "`scaled_dot_product_attention`",
                f"[{SPARSE} forward: faster than causal SDPA]",
                f"[{SPARSE} both passes: faster than causal SDPA]",
            ),
            (
                "a causal layer at 8,192, faster than that of `x-transformers` with flash",
                "[layer, causal at 8,192 forward: faster than x-transformers] (same kernel)",
                "[layer, causal at 8,192 both passes: faster than x-transformers]",
            ),
            (
                "a layer with a window of 256 at 8,192, faster than that of `x-transformers`",
                f"[{LAYER} forward: faster than x-transformers]",
                f"[{LAYER} both passes: faster than x-transformers]",
            ),
        ),
        f"A window of 256 over 1,048,576 positions, one head, takes [{MILLION}: time] forward and "
        f"[{MILLION}: peak extra memory] beyond its inputs. From 4,096 to 262,144 positions, the "
        "slowest time a token is [window of 256: slowest over fastest time a token] the fastest. "
        "The layer with a window takes "
        f"[{LAYER} forward: peak extra memory of Regard] beyond its input, that of x-transformers "
        f"[{LAYER} forward: peak extra memory of x-transformers].",
    ),
    "transformers_window": Table(
        "transformers_window",
        ("SmolLM2-135M, 30 layers, 4,096 tokens", "whole forward pass"),
        (
            ("transformers' own `sdpa` attention", "[sdpa at 4,096]"),
            ("through `regard.hf`, over that", "[regard, over sdpa] (same kernel)"),
            (
                "with a window of 256 on all layers, faster than `sdpa`",
                "[sdpa, over regard with window(before=255)]",
            ),
        ),
    ),
    "matrix": Table(
        "matrix",
        ("causal, heads of 64", "time", "memory beyond the inputs"),
        (
            (
                "entropy, received, offsets, a 512 × 512 picture and the 8 strongest keys, "
                "together, at 32,768 with 4 heads",
                f"[{FIVE} 32,768, 4 heads: time over SDPA] `scaled_dot_product_attention` on the "
                f"same tensors; [{FIVE} 32,768, 4 heads, lse given: time over SDPA] if the "
                "log-sum-exp is given",
                f"[{FIVE} 32,768, 4 heads: peak extra memory] "
                f"(the matrices would be [{FIVE} 32,768, 4 heads: the dense matrices])",
            ),
            (
                "the same at 16,384 with 4 heads; in brackets from `softmax(QKᵀ)`",
                f"[{FIVE} 16,384, 4 heads, Regard: time] "
                f"([{FIVE} 16,384, 4 heads, written down: time])",
                f"[{FIVE} 16,384, 4 heads, Regard: peak extra memory] "
                f"([{FIVE} 16,384, 4 heads, written down: peak extra memory])",
            ),
            (
                "the same at 131,072, one head",
                f"[{FIVE} 131,072, one head: time]",
                f"[{FIVE} 131,072, one head: peak extra memory]",
            ),
            (
                "a tile of 256 × 256, at 4,096 and at 1,048,576",
                "[a tile at 4,096: time] and [a tile at 1,048,576: time]",
                "",
            ),
            (
                "a row and a column at 1,048,576",
                "[a row at 1,048,576: time] and [a column at 1,048,576: time]",
                "",
            ),
        ),
    ),
    "watch": Table(
        "watch",
        ("SmolLM2-135M, 30 layers of 9 heads", "time over a bare forward pass", "memory"),
        (
            (
                "2,048 tokens, watched, every call checked",
                "[watched, checks included, over bare]",
                "[memory at 2,048 beyond the model: watched, queries and keys kept] "
                "(bare [memory at 2,048 beyond the model: bare])",
            ),
            (
                "eager attention with `output_attentions=True`, as BertViz needs it",
                "[eager with output_attentions, over bare]",
                "[memory at 2,048 beyond the model: eager with output_attentions]",
            ),
            (
                "TransformerLens, `run_with_cache`, attention weights alone",
                "[TransformerLens run_with_cache, weights alone, over bare]",
                "",
            ),
            (
                "8,192 tokens, five summaries of all 270 heads on the way",
                "[watched with five summaries of 270 heads, over bare] "
                "(bare [bare forward at 8,192])",
                "the matrices would be [the matrices of 270 heads at 8,192, written down]",
            ),
            (
                "32 tokens generated, watched",
                "[watched, over bare] (bare [bare generation of 32 tokens])",
                "",
            ),
        ),
    ),
    "page": Table(
        "page",
        (
            "one file of HTML",
            "size",
            "made, model run included, in",
            "memory beyond the model",
            "opens in",
        ),
        (
            page_row("MiniLM, 72 heads, a sentence", "minilm, a sentence"),
            bertviz_row("minilm, a sentence"),
            page_row("MiniLM, 300 tokens", "minilm, 300 tokens"),
            bertviz_row("minilm, 300 tokens"),
            page_row("SmolLM2, 270 heads, 1,000 tokens", "smollm2, 1,000 tokens"),
            bertviz_row("smollm2, 1,000 tokens"),
            page_row("SmolLM2, 8,192 tokens", "smollm2, 8,192 tokens"),
        ),
        "Pages of Regard are opened with the network off. For BertViz, the scripts that it asks "
        "the network for were there at once; its sentence with the network off: "
        "[BertViz, minilm, a sentence: until it is open, network off].",
    ),
    "map": Table(
        "map",
        ("95 of 100 tiles take less than", "far away (stored)", "close by (computed)"),
        (
            (
                "SmolLM2 over 8,192 tokens of Moby-Dick, 270 heads, [book: size on disk]",
                levels("book: tile of a head", 0, 1),
                levels("book: tile of a head", 2, 5),
            ),
            (
                "131,072 tokens, 4 heads, causal, made up",
                levels("long: tile of a head", 0, 5),
                levels("long: tile of a head", 6, 9),
            ),
            (
                "1,048,576 tokens, one head, a window of 4,096, made up",
                levels("longest: tile of a head", 0, 8),
                levels("longest: tile of a head", 9, 12),
            ),
        ),
        "A range is that over the levels of zoom. The mean of all heads of a layer of the book "
        f"takes {levels('book: tile of mean of heads', 2, 5)} where it is computed. 32 viewers who "
        "pan at random for a minute get [load: requests of 32 viewers in 60 s] answers and "
        "[load: errors] errors; the server holds [load: memory of the server]. Recording the book "
        "takes [book: recording over a bare forward pass] a bare forward pass "
        "([book: time to record] against [book: bare forward pass]). In a browser that has never "
        "been there, the first picture is there after "
        "[first: picture from a warm server, median], "
        "[first: picture from a fresh server, median] if the server has just begun.",
    ),
    "patching": Table(
        "patching",
        (
            "`part=`",
            "layer 23, head 3",
            "layer 24, head 4",
            "layer 17, head 4",
            "time over a bare forward pass",
        ),
        tuple(patching_row(part) for part in ("output", "query", "key", "value", "weights")),
        "Changes of the target, which is [corrupted: difference of logits] in the corrupted run "
        "and [clean: difference of logits] in the clean one. Times are processor time: of all 270 "
        'heads for "output", of ten for each other part. Watching the clean run takes '
        "[clean run watched with values, over bare] of a bare pass. TransformerLens 4.3.0 finds "
        "the same changes of all 270 outputs, and of the other parts of ten heads: the largest "
        "distances are [TransformerLens: largest distance of 270 outputs | "
        "TransformerLens, query: largest distance of 10 heads | "
        "TransformerLens, key: largest distance of 7 key heads | "
        "TransformerLens, value: largest distance of 7 key heads | "
        "TransformerLens, weights: largest distance of 10 heads], "
        "with keys and values patched by key head. An output takes it "
        "[TransformerLens: output of a head, over bare] of a bare pass with fused attention, and "
        "its clean run [TransformerLens: clean run with cache, over bare].",
    ),
    "steer": Table(
        "steer",
        (
            "",
            "follow, of 240 prompts of 240 tokens",
            "of 24 of 2,700",
            "loss on other text, more by",
        ),
        tuple(steer_row(name) for name in ("factor 1", "factor 3", "factor 10", "share 0.1")),
        "Time over a forward pass of four layers over 4,096 tokens, all heads, 256 keys: "
        "[factor on all heads, over bare] with a factor, [share on all heads, over bare] with a "
        "share, [factor with padding, over bare] with a factor and padding; by a mask of n × n "
        "[by a mask of n × n, over bare].",
    ),
    "effects": Table(
        "effects",
        ("`how=`", "Spearman", "of the 20 strongest heads", "cost in forward passes"),
        (
            effects_row('"gradient"', "gradient"),
            effects_row('"integrated"', "integrated"),
            effects_row(
                '"gradient", then "exact" for the strongest 40', "gradient, then 40 heads ablated"
            ),
            effects_row('"exact"', "exact"),
        ),
        "Ranges over three targets: the log-probability of repeated random tokens, of a text, and "
        "the difference of two logits. Costs are processor time.",
    ),
    "ring": Table(
        "ring",
        (
            "forward pass",
            f"{RING} bytes sent, of a full ring's",
            "busiest rank over the mean",
            f"{FAR} a rank receives",
            "computes, a head",
            "time to plan that",
        ),
        tuple(ring_row(name) for name in ("window", "columns", "documents", "causal")),
    ),
    "atlas": Table(
        "atlas",
        ("SmolLM2-135M, 30 layers of 9 heads, windows of 512 tokens", ""),
        (
            (
                "a survey on one Ray worker, over the same pipeline with the bare model",
                "[rate: survey over bare model] "
                "([rate: survey] against [rate: bare model in the pipeline])",
            ),
            ("two workers on two cores, over one", "[workers: two over one]"),
            (
                "all measures, beyond a forward pass in the same process",
                "[shares: all, beyond a forward pass]",
            ),
            (
                "memory of the process that asks, ten times the tokens over once",
                "[memory: ten times the tokens]",
            ),
            ("its memory for a unit, a file or a stretch of one", "[driver: memory of a unit]"),
            (
                "its time for a shard before the first begins",
                "[driver: a shard handed to Ray Data before the first begins]",
            ),
            ("a shard through Ray Data, without any work", "[driver: a shard through Ray Data]"),
            (
                "the tally of a shard kept; merged in the end",
                "[driver: a tally of 270 heads kept], "
                "[driver: a tally of 270 heads merged in the end]",
            ),
            ("a tally on disk", "[driver: size of a tally of 270 heads]"),
        ),
    ),
}
"""By name."""

_NAMES = re.compile(r"\[([^\]]+)\]")


def filled(cell: str, figures: Mapping[str, Figure]) -> str:
    """Put values in the place of names.

    Raises:
        ValueError: no figure has a name.
    """
    return _NAMES.sub(lambda found: _range(found[1].split(" | "), figures), cell)


def names_in(cell: str) -> list[str]:
    """Return the names of the figures that a cell shows."""
    return [name for found in _NAMES.findall(cell) for name in found.split(" | ")]


def _range(names: list[str], figures: Mapping[str, Figure]) -> str:
    if missing := [name for name in names if name not in figures]:
        raise ValueError(f"no figure is called {missing[0]!r}; there are: {', '.join(figures)}")
    found = sorted((figures[name] for name in names), key=lambda figure: figure.value)
    if any(math.isnan(figure.value) for figure in found):
        return next(figure.note for figure in found if math.isnan(figure.value)) or "—"
    least, most = spoken(found[0]), spoken(found[-1])
    if least == most:
        return least
    unit = most.rpartition(" ")[2]
    return f"{least.removesuffix(f' {unit}')}–{most}"


_SMALLER = {"GB": "MB", "s": "ms"}
_LARGER = {"MB": "GB", "ms": "s"}


def spoken(figure: Figure) -> str:
    """Return a value as one says it: two digits, three for ratios near 1, and a unit that fits."""
    value, unit = figure.value, figure.unit
    if 0 < value < 0.1 and unit in _SMALLER:
        value, unit = 1000 * value, _SMALLER[unit]
    elif value >= 1000 and unit in _LARGER:
        value, unit = value / 1000, _LARGER[unit]
    digits = 3 if unit == "×" and 1 <= value < 2 else 2
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{decimals}f} {unit}".strip()
