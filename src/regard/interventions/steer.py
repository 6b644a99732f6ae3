"""`steer`: attention that is drawn to spans of the text."""

import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn

from regard.interventions.layers import Layer
from regard.interventions.reweight import Reweight
from regard.patterns import Pattern, pairs


@contextmanager
def steer(
    model: nn.Module,
    spans: Pattern | int | slice | Tensor | Iterable[range | int],
    *,
    factor: float | None = None,
    share: float | None = None,
    layers: Iterable[Layer] | None = None,
    heads: Iterable[int] | None = None,
    positions: int | None = None,
    cross: bool | None = None,
) -> Generator[None]:
    """Draw the attention of a model to spans while it runs.

        with regard.steer(model, regard.spans(tokenizer, prompt, "in tonnes"), factor=10):
            model.generate(**tokenizer(prompt, return_tensors="pt"))

    Weights of the spans are multiplied by `factor`, and each row is divided by its new sum, as in
    PASTA (Zhang et al., 2024); or the spans get at least `share` of each row, as in SpotLight
    (Venkateswaran and Contractor, 2025): rows that give them more stay what they are. So do rows
    that can't see the spans, and, given a share, rows that see nothing else. A sink is a part of
    the rest of its row.

    It is exact, and runs as `knock_out` does: with the model's kernels, in `generate` with a cache,
    with gradients, together with `watch`, which then shows the weights as they are. A factor of 0
    is `knock_out`; with a factor of 1, the output is bit by bit the same. With a share, the factor
    of a row depends on its scores, and gradients flow through that, too. The effects of pairs that
    `watch` shows are those of the scores that the softmax gets, with that factor as it is.

    Args:
        model: any model that `watch` understands. Only its calls in this thread are altered.
        spans: the keys: what `regard.spans` returns, a span, or positions of tokens, counted from
            0, padding included; or a pattern, such as `pairs(queries=…, keys=…)`, if queries or
            sequences differ.
        factor: the factor on weights of the spans, at least 0.
        share: the share of each row that the spans have at least, between 0 and 1; instead of a
            factor.
        layers: in which layers, as for `knock_out`. All by default, in models without
            cross-attention.
        heads: for which heads of these layers, counted from 0. All by default.
        positions: the position of the first query of each call, as for `knock_out`.
        cross: whether queries and keys are two sequences, as for `knock_out`.

    Raises:
        TypeError: model is no module, or an argument has the wrong type.
        ValueError: there are no spans, or not one of factor and share, or these can't be; a layer
            or a head isn't there, the pattern does not fit the call, or a call can't be altered
            exactly; the message says why.
        RuntimeError: a layer has not called attention inside the block, or would be computed again,
            unaltered, by a backward pass after it.
    """
    if (factor is None) == (share is None):
        raise ValueError(f"pass either factor or share, got factor={factor} and share={share}")
    for name, number in (("factor", factor), ("share", share)):
        if isinstance(number, bool) or not isinstance(number, int | float | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name} must be a number, got {number!r}")
    if factor is not None and not (math.isfinite(factor) and factor >= 0.0):
        raise ValueError(f"factor must be at least 0 and finite, got {factor}")
    if share is not None and not 0.0 < share < 1.0:
        raise ValueError(f"share must be between 0 and 1, got {share}")

    pattern = spans if isinstance(spans, Pattern) else pairs(keys=_keys_of(spans))
    with Reweight(
        model,
        pattern,
        0.0 if factor is None else float(factor),
        share,
        layers=layers,
        heads=heads,
        positions=positions,
        cross=cross,
    ):
        yield


def _keys_of(spans: Any) -> Any:
    """Return the positions of keys, as for `pairs`.

    Raises:
        TypeError: they are no spans.
        ValueError: there are none.
    """
    if isinstance(spans, str) or not isinstance(spans, int | slice | Iterable):
        raise TypeError(
            "spans must be ranges or positions of tokens, as by regard.spans(tokenizer, text, "
            f"part), or a Pattern, got {type(spans).__name__}"
        )
    if isinstance(spans, int | slice | tuple):
        return spans
    positions: list[int] = []
    for span in cast(Iterable[Any], spans):
        positions += span if isinstance(span, range) else [span]
    if not positions:
        raise ValueError("spans must have at least one position, got none")
    return positions
