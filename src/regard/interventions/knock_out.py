"""`knock_out`: pairs that may not be looked at any more."""

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakSet

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import attend_with_lse
from regard.attention.call import Attention
from regard.capture.call import Call, KernelCall, WrittenCall
from regard.capture.listener import CallSite, Rank
from regard.capture.masks import Sizes
from regard.capture.module_stack import Frame
from regard.capture.parse import ParsedCall, is_causal, parse_call
from regard.capture.product import MaskedScores, Product, WeightMask, key_of
from regard.capture.reading import Reading, read_axes
from regard.capture.score_mask import MASKS, ScoreMask
from regard.capture.where import check_model
from regard.internals import without_torch_function
from regard.interventions.forbidden import Forbidden
from regard.interventions.intervention import Intervention, check_heads
from regard.interventions.layers import Layer, Layers
from regard.interventions.recompute import check_parsed, recomputed
from regard.interventions.token_positions import QueryPositions, has_tokens
from regard.patterns import Cover, Pattern
from regard.patterns.pattern import Span, intersect
from regard.patterns.remapped import remapped
from regard.positions.bias import compose

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
    # 1. The pattern and the heads.
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

    # 2. What is stated of calls.
    if positions is not None and (isinstance(positions, bool) or not isinstance(positions, int)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"positions must be the position of the first query, got {positions!r}")
    if positions is not None and positions < 0:
        raise ValueError(f"positions: the first query must be at 0 or later, got {positions}")
    if positions is not None and cross:
        raise ValueError("positions must be None with cross=True, where queries count from 0")
    places = QueryPositions(positions, cross)
    with _KnockOut(model, Layers(model, layers, "layers"), pattern, chosen, places):
        yield


class _KnockOut(Intervention):
    """Forbids pairs; arguments as for `knock_out`."""

    rank = Rank.KNOCK_OUT

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        pattern: Pattern,
        heads: list[int] | None,
        positions: QueryPositions,
    ) -> None:
        super().__init__(model, layers)
        self._pattern, self._heads, self._positions = pattern, heads, positions
        self._num_calls = 0
        self._remaining: deque[tuple[Pattern, Pattern, Pattern]] = deque(maxlen=_LATEST)
        self._done: WeakSet[Frame] = WeakSet()
        self.needs_heads = heads is not None or pattern.batch_size is not None

    def site(self, module: nn.Module | None) -> CallSite | None:
        site = super().site(module)
        if site is None or self._positions.cross is None:
            return site
        return site._replace(cross=self._positions.cross)

    def changed(self, site: CallSite, call: Call) -> KernelCall | None:
        if isinstance(call, WrittenCall):
            # The scores were masked before the softmax.
            self._check_masked(site, call)
            return None
        self._check_site(site)
        heads = self._heads_of(site, call.query.shape[1])
        parsed = self._parsed(site, call)
        inputs = parsed.call
        knocked = self._in_call(site, parsed, call.key)
        rows = _affected(inputs, knocked)
        if not len(rows) or not heads:
            return None
        self._num_calls += 1
        check_parsed(call, inputs, self._num_calls)
        if call.weights is not None:
            try:
                call = _from_weights(call, knocked, heads, inputs)
            except ValueError as error:
                self.refuse(site, str(error))
        else:
            remaining = self._remaining_of(inputs.pattern, knocked)
            call = recomputed(call, replace(inputs, pattern=remaining), heads, rows)
        call = replace(call, original=call.output, kernel_lse=None)
        if len(heads) == call.query.shape[1]:
            return replace(call, pattern=intersect(call.pattern, ~knocked))
        forbidden = Forbidden(knocked, tuple(heads), call.query.shape[1])
        return replace(call, bias=compose(call.bias, forbidden))

    def mask_scores(
        self, scores: Tensor, key_axis: int, mask: ScoreMask | None
    ) -> MaskedScores | None:
        site = self.site(None)
        if site is None:
            return None
        with without_torch_function(), self.explained(site):
            self._check_site(site)
            if key_axis % scores.dim() != scores.dim() - 1:
                self.refuse(site, f"its softmax is over axis {key_axis}, not the last one")

            # 1. The axes of the scores, read as those of the weights will be, whose outputs have
            # one number each. Instead of values, keys tell sequences apart.
            marks = torch.zeros(scores.shape, dtype=torch.float16, device=scores.device)
            key = None if mask is None else key_of(mask.operands, scores.shape[-1])
            value = _in_place_of_values(key, marks)
            product = Product(
                marks,
                value,
                marks[..., :1].expand(*marks.shape[:-1], value.shape[-1]),
                dropped=False,
                mask=None if mask is None else WeightMask(mask.masked),
                operands=() if mask is None else mask.operands,
            )
            try:
                reading = read_axes(product, self.running, self.capture.num_heads)
            except ValueError as error:
                self.refuse(site, str(error))
            sheets = reading.weights
            known = reading.heads_known or not self.needs_heads
            if not known or sheets.data_ptr() != marks.data_ptr():
                self.refuse(site, "its heads can't be told from its batch")

            # 2. The pairs to be masked, but those that the model masks by itself.
            pairs = self._pairs(site, reading, key, has_mask=mask is not None)
            sheets[:, self._heads_of(site, sheets.shape[1])] = pairs[:, None].to(marks.dtype)
            if reading.masked is not None:
                sheets.masked_fill_(reading.masked, 0.0)
            flags, detached = marks > 0, scores.detach()
            if mask is None:
                flags &= detached > -torch.inf

            # 3. Rows without any other pair, whose output is 0.
            left = ~flags if mask is None or mask.masked is None else ~(flags | mask.masked)
            empty = flags.any(dim=-1, keepdim=True) & ~left.any(dim=-1, keepdim=True)
            if mask is None:
                highest = detached.masked_fill(flags, -torch.inf).amax(dim=-1, keepdim=True)
                empty = flags.any(dim=-1, keepdim=True) & (highest == -torch.inf)
                low = flags.any(dim=-1, keepdim=True) & (highest <= MASKS) & ~empty
                if bool(low.any()):
                    self.refuse(site, "which pairs it masks is unknown")
            changed = scores.masked_fill(flags, -torch.inf).masked_fill(empty, 0.0)
            return MaskedScores(changed, empty, flags, sheets > 0)

    def _check_masked(self, site: CallSite, call: WrittenCall) -> None:
        """Refuse weights whose masked pairs are not those that were masked before the softmax."""
        for masked_scores in call.product.masked_scores:
            own = masked_scores.get(self)
            masked = None if own is None else own.by_head
            weights = call.axes.weights
            if masked is not None and not self.needs_heads and masked.shape[1] == 1:
                # All heads of all sequences have the same pairs masked.
                masked, weights = masked.all(dim=0)[None], weights.flatten(0, 1)[:, None]
            if masked is None or masked.shape[1:] != weights.shape[1:]:
                self.refuse(site, "its weights are no softmax of scores of queries and keys")
            # A row in which the model has masked all pairs may be NaN.
            if bool((weights.nan_to_num(0.0) * masked).any()):
                self.refuse(site, "the axes of its weights can't be told apart")

    def multiplied_again(self, site: CallSite) -> None:
        """Accept it: the weights are masked."""

    def _check_site(self, site: CallSite) -> None:
        """Refuse calls of which it isn't known where they stand."""
        if site.cross and self._layers.named is None:
            raise ValueError(
                f"layers: {site.name or 'the model'} is cross-attention, so name the layers "
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

    def _parsed(self, site: CallSite, call: KernelCall) -> ParsedCall:
        if call.mask is not None and call.mask.requires_grad:
            # Numbers that learn: what is read of a mask has no gradient.
            added = call.mask if call.added is None else call.mask + call.added
            call = replace(call, mask=None, added=added)
        try:
            return parse_call(call, self.capture.masks, cross=site.cross is True)
        except ValueError as error:
            self.refuse(site, str(error))

    def _in_call(self, site: CallSite, parsed: ParsedCall, key: Tensor) -> Pattern:
        """Return the pairs in the positions that a call has for its queries and keys."""
        inputs = parsed.call
        if inputs.first_position is None:
            # The caller lists the position of each query.
            return self._pattern
        queries, keys = inputs.num_queries, inputs.num_keys
        # A cache may have room behind the keys.
        used = keys
        if is_causal(inputs.pattern):
            used = max(0, min(keys, inputs.first_position + queries))
        said = parsed.first_query
        return self._moved(site, queries, keys, said, inputs.first_position, key[..., :used, :])

    def _pairs(
        self, site: CallSite, reading: Reading, key: Tensor | None, *, has_mask: bool
    ) -> Bool[Tensor, "batch_or_1 queries keys"]:
        """Return the pairs of a call with explicit weights.

        Args:
            site: its module.
            reading: its axes.
            key: its keys, if known, [..., keys, key_dim].
            has_mask: whether its mask is known.
        """
        batch, _, queries, keys = sizes = tuple(reading.weights.shape)
        said = 0 if queries == keys or self.capture.cross is False else None
        used = keys
        if said is None and has_mask and reading.masked is not None:
            meaning = self.capture.masks.read(
                ~reading.masked, Sizes(*sizes), cross=site.cross is True
            )
            if queries > 1 and is_causal(meaning.pattern):
                said = meaning.first_query
            allowed = ~reading.masked.flatten(0, 2).all(dim=0)
            used = int(allowed.nonzero().max()) + 1 if bool(allowed.any()) else 0
        first = keys - queries
        key = None if key is None or not has_mask else key[..., :used, :]
        moved = self._moved(site, queries, keys, said, first, key)
        moved.check(batch, range(first, keys), keys)
        positions = torch.arange(first, keys, device=reading.weights.device)
        return moved.dense(positions, keys)

    def _moved(
        self,
        site: CallSite,
        queries: int,
        keys: int,
        said: int | None,
        assumed: int,
        key: Tensor | None,
    ) -> Pattern:
        """Return the pairs in other positions; `assumed` is that of the first query in the result.

        Arguments as for `QueryPositions.of`.
        """
        stand = self._positions.of(site, queries, keys, said, key)
        first_query = stand.first_query
        if first_query is None and self._pattern.key_only and has_tokens(site.frame, keys, key):
            first_query = 0
        if first_query is None:
            self.refuse(
                site,
                f"which positions its {queries} queries have among its {keys} keys is unknown: "
                "pass positions=, that of the first query, or cross=True if queries and keys are "
                "two sequences",
            )
        return remapped(self._pattern, first_query - assumed, stand.first_key)

    def _remaining_of(self, pattern: Pattern, knocked: Pattern) -> Pattern:
        """Return what is left of a pattern, the same for all layers that have the same."""
        for allowed, masked, left in self._remaining:
            if allowed is pattern and masked == knocked:
                return left
        left = pattern & ~knocked
        self._remaining.append((pattern, knocked, left))
        return left


def _in_place_of_values(
    key: Float[Tensor, "*leading keys key_dim"] | None, scores: Float[Tensor, "*axes queries keys"]
) -> Float[Tensor, "... keys dim"]:
    """Return keys in the place of values that scores will be multiplied with, or NaN."""
    axes = scores.shape[:-2]
    if key is not None:
        if key.shape[:-2].numel() == axes.numel():
            return key.reshape(*axes, *key.shape[-2:])
        if key.dim() == scores.dim() and key.shape[-3] == 1:
            return key
        if key.dim() == scores.dim() - 1 and key.shape[0] == scores.shape[0]:
            # Shared by all heads.
            return key.unsqueeze(1)
    return torch.full_like(scores.mT[..., :1], torch.nan)


def _affected(inputs: Attention, knocked: Pattern) -> Int[Tensor, "rows"]:
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


def _from_weights(
    call: KernelCall, knocked: Pattern, heads: list[int], inputs: Attention
) -> KernelCall:
    """Return a call of which the kernel has written the weights down."""
    assert call.weights is not None
    weights = call.weights.to(torch.promote_types(call.weights.dtype, torch.float32))
    chosen = torch.zeros(weights.shape[1], dtype=torch.bool, device=weights.device)
    chosen[heads] = True

    # 1. The pairs, and what sinks take.
    positions = inputs.query_positions.to(weights.device)
    forbidden = knocked.dense(positions, weights.shape[3])[:, None]
    forbidden = forbidden & chosen[:, None, None]
    sink, apart = _sinks_of(call, weights, inputs)
    if apart:
        weights = weights * (1.0 - sink)

    # 2. The other weights of a row grow; rows without such a pair stay bit by bit what they are.
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
    call: KernelCall, weights: Float[Tensor, "batch heads queries keys"], inputs: Attention
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
