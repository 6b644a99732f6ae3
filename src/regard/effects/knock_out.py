"""`knock_out`: pairs that may not be looked at any more."""

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import attend, attend_with_lse
from regard.attention.inputs import AttentionInputs
from regard.calls.check import check_scores, check_weights
from regard.effects.alteration import Alteration, CallSite, check_heads
from regard.effects.forbidden import Forbidden
from regard.effects.layers import Layer, Layers
from regard.effects.places import places
from regard.internals import without_torch_function
from regard.matrix.scores import Scores
from regard.patterns import Cover, Pattern
from regard.patterns.cover import Span
from regard.patterns.narrowed import narrowed
from regard.patterns.shifted import Shifted
from regard.positions.joined import joined
from regard.watch.masks import Masks
from regard.watch.module_stack import Frame
from regard.watch.product import NarrowedScores, Product
from regard.watch.raw_call import Rank, RawCall
from regard.watch.reading import Reading, read_axes
from regard.watch.understood import understood
from regard.watch.where import check_model

_FORBIDS = -9e3
"""A score that is as good as forbidden: what models add to that of a pair that they mask."""

_SPANS = 64
"""Into so many spans keys are cut to find rows that have a forbidden pair."""

_LATEST = 4
"""So many patterns are remembered: layers of a model have one, two or three kinds."""

_ROUNDED = 0.05
"""How far from 1 the sum of a row may be, by rounding in half precision."""


@contextmanager
def knock_out(
    model: nn.Module,
    pattern: Pattern,
    *,
    layers: Iterable[Layer] | None = None,
    heads: Iterable[int] | None = None,
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
    are counted in their sequence and keys in the other one.

    Args:
        model: any model that `watch` understands. Only its calls in this thread are altered.
        pattern: the pairs, such as `pairs(queries=…, keys=…)` or `~window(255)` for all that is
            further back than 255. Pairs that the model forbids by itself make no difference.
        layers: in which layers; each is its number, or the path of a module as `watch` shows it,
            such as "model.decoder.layers.*.encoder_attn". All by default, in models without
            cross-attention.
        heads: for which heads of these layers, counted from 0. All by default; a run in which it is
            some can't be recorded.

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
    chosen = None if heads is None else sorted(set(heads))
    for head in chosen or ():
        if isinstance(head, bool) or not isinstance(head, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"heads must be whole numbers, got {head!r}")
        if head < 0:
            raise ValueError(f"heads: a head must be at least 0, got {head}")
    with _KnockOut(model, Layers(model, layers, "layers"), pattern, chosen):
        yield


class _KnockOut(Alteration):
    """Forbids pairs; arguments as for `knock_out`."""

    rank = Rank.KNOCK_OUT

    def __init__(
        self, model: nn.Module, layers: Layers, pattern: Pattern, heads: list[int] | None
    ) -> None:
        super().__init__(model, layers)
        self._pattern, self._heads = pattern, heads
        self._masks, self._num_runs, self._num_calls = Masks(), 0, 0
        self._remaining: deque[tuple[Pattern, Pattern, Pattern]] = deque(maxlen=_LATEST)
        self._done: WeakSet[Frame] = WeakSet()

    def altered(self, site: CallSite, call: RawCall) -> RawCall | None:
        self._check_site(site)
        heads = self._heads_of(site, call.query.shape[1])
        inputs = self._understood(site, call)
        knocked = self._placed(site, inputs.num_queries, inputs.num_keys, inputs.first_position)
        rows = _affected(inputs, knocked)
        if not len(rows) or not heads:
            return None
        if call.dropout > 0:
            self.refuse(site, "dropout is on: call model.eval() first")
        self._check(site, call, inputs)
        if call.weights is not None:
            try:
                call = _from_weights(call, knocked, heads, inputs)
            except ValueError as error:
                self.refuse(site, str(error))
        else:
            call = self._attended(call, inputs, knocked, heads, rows)
        call = replace(call, original=call.output, kernel_lse=None)
        if len(heads) == call.query.shape[1]:
            return replace(call, pattern=narrowed(call.pattern, ~knocked))
        forbidden = Forbidden(knocked, tuple(heads), call.query.shape[1])
        return replace(call, bias=joined(call.bias, forbidden))

    def narrow(self, scores: Tensor, key_axis: int, num_heads: int | None) -> NarrowedScores | None:
        site = self.site(None)
        if site is None:
            return None
        with without_torch_function():
            self._check_site(site)
            if key_axis % scores.dim() != scores.dim() - 1:
                self.refuse(site, f"its softmax is over axis {key_axis}, not the last one")
            # Read as the weights will be, with values and outputs of one number each.
            marks = torch.zeros(scores.shape, dtype=torch.float16, device=scores.device)
            product = Product(marks, marks.mT[..., :1], marks[..., :1], dropped=False)
            try:
                reading = read_axes(product, self.running, num_heads)
            except ValueError as error:
                self.refuse(site, str(error))
            sheets = reading.weights
            if not reading.heads_known or sheets.data_ptr() != marks.data_ptr():
                self.refuse(site, "its heads can't be told from its batch")
            _, there, queries, keys = sheets.shape
            heads = self._heads_of(site, there)
            forbidden = self._forbidden(site, queries, keys, len(sheets), marks.device)
            sheets[:, heads] = forbidden[:, None].to(marks.dtype)
            flags = marks > 0
            left = scores.detach().masked_fill(flags, -torch.inf).amax(dim=-1, keepdim=True)
            looked = scores.detach().amax(dim=-1, keepdim=True) > _FORBIDS
            empty = flags.any(dim=-1, keepdim=True) & looked & (left <= _FORBIDS)
            changed = scores.masked_fill(flags, -torch.inf).masked_fill(empty, 0.0)
            return NarrowedScores(changed, empty, tuple(sheets.shape))

    def altered_product(
        self, site: CallSite, product: Product, reading: Reading, num_heads: int | None
    ) -> None:
        shape = tuple(reading.weights.shape)
        if any(one is None or one.shape != shape for one in product.narrowed):
            self.refuse(site, "its weights are no softmax of scores of queries and keys")
        batch, there, queries, keys = shape
        forbidden = self._forbidden(site, queries, keys, batch, reading.weights.device)
        for head in self._heads_of(site, there):
            if bool((reading.weights[:, head] * forbidden).any()):
                self.refuse(site, "which axis of its weights is which could not be told")

    def _check_site(self, site: CallSite) -> None:
        """Refuse calls of which it isn't known where they stand."""
        if site.cross and self._layers.named is None:
            raise ValueError(
                f"layers: {site.name or 'the model'} looks at another sequence, so name the layers "
                "in which the pairs are to be forbidden"
            )
        if site.frame in self._done:
            self.refuse(site, "it calls attention several times, for parts of its sequence")
        self._done.add(site.frame)

    def _heads_of(self, site: CallSite, there: int) -> list[int]:
        if self._heads is None:
            return list(range(there))
        check_heads(site.name, self._heads, there)
        return self._heads

    def _understood(self, site: CallSite, call: RawCall) -> AttentionInputs:
        if self._num_runs != self._places.num_runs:
            self._num_runs = self._places.num_runs
            self._masks.forget()
        if call.mask is not None and call.mask.requires_grad:
            # Numbers that learn: what is read of a mask has no gradient.
            added = call.mask if call.added is None else call.mask + call.added
            call = replace(call, mask=None, added=added)
        try:
            return understood(call, self._masks, cross=site.cross is True)
        except ValueError as error:
            self.refuse(site, str(error))

    def _placed(self, site: CallSite, queries: int, keys: int, assumed: int | None) -> Pattern:
        """Return the pairs by the positions that the call has for its queries and keys."""
        stand = places(site.frame, site.cross is True, queries, keys, assumed)
        if stand.first_query is None or assumed is None:
            return self._pattern
        shift = stand.first_query - assumed
        if shift == stand.first_key and (not shift or self._pattern.relative):
            return self._pattern
        return Shifted(self._pattern, shift, stand.first_key)

    def _forbidden(
        self, site: CallSite, queries: int, keys: int, batch: int, device: torch.device
    ) -> Bool[Tensor, "batch_or_1 queries keys"]:
        """Write down which pairs are forbidden, of a call whose weights are written down too."""
        first = keys - queries
        knocked = self._placed(site, queries, keys, first)
        knocked.check(batch, range(first, keys), keys)
        return knocked.dense(torch.arange(first, keys, device=device), keys)

    def _check(self, site: CallSite, call: RawCall, inputs: AttentionInputs) -> None:
        """Refuse a call that was misunderstood."""
        self._num_calls += 1
        value, output, number = call.value, call.output, self._num_calls
        if call.weights is not None and call.sinks is None:
            found = check_weights(call.weights, value, output, number, dropout=False)
        else:
            first = inputs.first_position
            source = Scores(
                inputs.query.detach(),
                inputs.key.detach(),
                inputs.pattern,
                inputs.bias,
                inputs.scale,
                None if call.sinks is None else call.sinks.detach(),
                inputs.query_positions if first is None else first,
            )
            found = check_scores(source, value, output, number, dropout=False)
        if found.passed is False:
            self.refuse(site, f"{call.kernel} returned something else than A @ V ({found})")

    def _attended(
        self,
        call: RawCall,
        inputs: AttentionInputs,
        knocked: Pattern,
        heads: list[int],
        rows: Int[Tensor, "rows"],
    ) -> RawCall:
        """Compute the rows again that have a forbidden pair, on what is left to them."""
        query, key, value = call.query, call.key, call.value
        where = rows.to(query.device)
        if len(rows) < inputs.num_queries:
            query = query.index_select(2, where)
        some = len(heads) < inputs.num_heads
        index = torch.tensor(heads, device=query.device)
        sinks = call.sinks
        if some and inputs.bias is None:
            group = inputs.num_heads // key.shape[1]
            query = query.index_select(1, index)
            key, value = (x.index_select(1, index // group) for x in (key, value))
            sinks = None if sinks is None else sinks[index]
        options: dict[str, Any] = {
            "pattern": self._remaining_of(inputs.pattern, knocked),
            "bias": inputs.bias,
            "scale": inputs.scale,
            "positions": inputs.query_positions[rows],
        }
        if sinks is None and call.lse is None:
            output, lse = attend(query, key, value, **options), None
        else:
            output, lse = attend_with_lse(query, key, value, **options)
            if sinks is not None:
                share = torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])
                output = output * share[..., None].to(output.dtype)
        if some and inputs.bias is not None:
            output, lse = (None if x is None else x.index_select(1, index) for x in (output, lse))
        assert output is not None
        return replace(
            call,
            output=_put(call.output, output, index, where),
            lse=None if call.lse is None or lse is None else _put(call.lse, lse, index, where),
        )

    def _remaining_of(self, pattern: Pattern, knocked: Pattern) -> Pattern:
        """Return what is left of a pattern, the same for all layers that have the same."""
        for mine, theirs, left in self._remaining:
            if mine is pattern and theirs == knocked:
                return left
        left = pattern & ~knocked
        self._remaining.append((pattern, knocked, left))
        return left


def _affected(inputs: AttentionInputs, knocked: Pattern) -> Int[Tensor, "rows"]:
    """Return the rows that may have a forbidden pair, without a look at their pairs."""
    positions, num_keys = inputs.query_positions.cpu(), inputs.num_keys
    if not len(positions) or not num_keys:
        return positions[:0]
    low, high = (int(end) for end in positions.aminmax())
    knocked.check(inputs.batch, range(low, high + 1), num_keys)
    # A pair in a few keys counts only if the model may look at one of these.
    both = inputs.pattern & knocked
    sequences = torch.arange(both.batch_size or 1, device="cpu")[:, None, None]
    query = Span(positions[:, None], positions[:, None])
    first = torch.arange(0, num_keys, -(-num_keys // _SPANS), device="cpu")
    key = Span(first, torch.cat([first[1:], first.new_tensor([num_keys])]) - 1)
    codes = both.cover_spans(sequences, query, key)
    codes = codes.expand(len(sequences), len(positions), len(first))
    return (codes != Cover.NONE).any(dim=2).any(dim=0).nonzero().flatten()


def _put(
    old: Float[Tensor, "batch heads queries ..."],
    new: Float[Tensor, "batch some rows ..."],
    heads: Int[Tensor, "some"],
    rows: Int[Tensor, "rows"],
) -> Float[Tensor, "batch heads queries ..."]:
    """Return a tensor with other numbers in some rows of some heads."""
    new = new.to(old.dtype)
    if len(heads) < old.shape[1]:
        new = old.index_select(2, rows).index_copy(1, heads, new)
    return old.index_copy(2, rows, new) if len(rows) < old.shape[2] else new


def _from_weights(
    call: RawCall, knocked: Pattern, heads: list[int], inputs: AttentionInputs
) -> RawCall:
    """Return a call of which the kernel has written the weights down."""
    assert call.weights is not None
    weights = call.weights.to(torch.promote_types(call.weights.dtype, torch.float32))
    chosen = torch.zeros(weights.shape[1], dtype=torch.bool, device=weights.device)
    chosen[heads] = True
    positions = inputs.query_positions.to(weights.device)
    forbidden = knocked.dense(positions, weights.shape[3])[:, None]
    forbidden = forbidden & chosen[:, None, None]
    sink, apart = _sinks_of(call, weights, inputs)
    if apart:
        weights = weights * (1.0 - sink)
    left = _grown(weights.masked_fill(forbidden, 0.0), sink)
    value = call.value.to(left.dtype)
    grouped = left.view(len(left), value.shape[1], -1, left.shape[3])
    output = (grouped @ value).view(*left.shape[:3], -1)
    altered = forbidden.any(dim=-1, keepdim=True)
    if apart:
        left = _grown(left, torch.zeros_like(sink))
    return replace(
        call,
        output=torch.where(altered, output.to(call.output.dtype), call.output),
        weights=torch.where(altered, left.to(call.weights.dtype), call.weights),
    )


def _grown(
    weights: Float[Tensor, "batch heads queries keys"],
    sink: Float[Tensor, "batch heads queries 1"],
) -> Float[Tensor, "batch heads queries keys"]:
    """Return weights divided so that rows sum to 1 with their sinks; rows of zeros stay zeros."""
    total = weights.sum(dim=-1, keepdim=True) + sink
    return weights / total.masked_fill(total <= 0.0, 1.0)


def _sinks_of(
    call: RawCall, weights: Float[Tensor, "batch heads queries keys"], inputs: AttentionInputs
) -> tuple[Float[Tensor, "batch heads queries 1"], bool]:
    """Return the share of its sink in each row, and whether weights are a softmax without it.

    As 1 less the weights, a share would be lost in their rounding.

    Raises:
        ValueError: rows sum to 1 neither with nor without the sink.
    """
    if call.sinks is None:
        return torch.zeros_like(weights[..., :1]), False
    _, lse = attend_with_lse(
        call.query,
        call.key,
        call.value,
        pattern=inputs.pattern,
        bias=inputs.bias,
        scale=inputs.scale,
        positions=inputs.query_positions,
    )
    share = torch.sigmoid(call.sinks.to(lse.dtype)[:, None] - lse)[..., None]
    # Rows without allowed keys have any weights, or none.
    total = weights.sum(dim=-1, keepdim=True)[lse.isfinite()]
    apart, together = ((sums - 1.0).abs() for sums in (total, total + share[lse.isfinite()]))
    if not bool((torch.minimum(apart, together) < _ROUNDED).all()):
        raise ValueError("rows of its weights sum to 1 neither with nor without its sinks")
    return share, bool(apart.sum() < together.sum())
