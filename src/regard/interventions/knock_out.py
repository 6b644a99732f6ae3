"""`knock_out`: pairs that may not be looked at any more."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from torch import nn

from regard.capture.where import check_model
from regard.interventions.layers import Layer
from regard.interventions.reweight import Reweight
from regard.patterns import Pattern


@contextmanager
def knock_out(
    model: nn.Module,
    pattern: Pattern,
    *,
    layers: Iterable[Layer] | None = None,
    heads: Iterable[int] | None = None,
    positions: int | None = None,
    cross: bool | None = None,
) -> Generator[None]:
    """Forbid pairs of positions while a model runs: those that a pattern allows.

        with regard.knock_out(model, regard.pairs(keys=range(3, 9)), layers=[5]):
            logits = model(**inputs).logits

    What is left of a row is what the model would have computed had it masked these pairs: the other
    weights grow until they sum to 1. A query to which nothing is left gets zeros. Kernels stay
    what they are, nothing is n × n, and rows that have no such pair stay bit by bit the same. It
    works in `generate` with a cache, with gradients, and together with `watch`, in any order, which
    then shows the weights as they are. After the block nothing is left behind. A model that is
    checkpointed computes its calls again in the backward pass, so that this has to run inside the
    block too.

    Positions are those of the tokens, counted from 0, padding included. In cross-attention, queries
    are counted in their sequence and keys in the other one. Where there are as many queries as
    keys, or a causal mask, a cache of transformers, or keys that continue those of the call before,
    the position of the first query is known. Elsewhere it must be stated, unless the pattern is the
    same for all queries.

    Pairs are masked right before the softmax: a model that selects keys before that, such as the
    top k, selects among all of them.

    Args:
        model: any model that `watch` understands. Only its calls in this thread are altered.
        pattern: the pairs, such as `pairs(queries=…, keys=…)` or `~window(255)` for all that is
            further back than 255. Pairs that the model forbids by itself make no difference.
        layers: in which layers; each is its number, or the path of a module as `watch` shows it,
            such as "model.decoder.layers.*.encoder_attn". All by default, in models without
            cross-attention.
        heads: for which heads of these layers, counted from 0. All by default; a run in which it is
            some can't be recorded.
        positions: the position of the first query of each call, where the call does not tell it;
            keys are counted from 0.
        cross: whether queries and keys are two sequences, each counted from 0; by default, where
            the module is called so, as by transformers.

    Raises:
        TypeError: model is no module, pattern is no pattern, or heads are no numbers.
        ValueError: a layer or a head isn't there, the pattern does not fit the call, or a call
            can't be altered exactly; the message says why.
        RuntimeError: a layer has not called attention inside the block, or would be computed again,
            unaltered, by a backward pass after it.
    """
    check_model(model)
    if not isinstance(pattern, Pattern):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "pattern must be a Pattern such as pairs(keys=range(3, 9)), "
            f"got {type(pattern).__name__}"
        )
    with Reweight(model, pattern, layers=layers, heads=heads, positions=positions, cross=cross):
        yield
