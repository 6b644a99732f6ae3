"""Multiply weights of pairs, and divide each row by its new sum: `knock_out` and `steer`.

A row attends to the pairs S with the share p = Σ_{j in S} w_j. With their weights multiplied by f:

    w  =  0.5   0.3  │ 0.1   0.1         S is the last two keys, p = 0.2
    f = 3       × 1  │     × 3
          0.36  0.21 │ 0.21  0.21        divided by 1 + (f − 1) p = 1.4

That is the softmax of scores to which log f is added in S; −∞ masks them. A share s of the row is

    f = s (1 − p) / (p (1 − s))          log f = logit s − logit p; f = 1 if p ≥ s already

Kernels don't return weights. But the new output is on the line between two outputs, o of the whole
row and o_S of its pairs alone, and their log-sum-exps L say where: p = e^(L_S − L), and

    o′ = (1 − c) o + c o_S               logit c = L_S − L + log (f − 1)
                                         logit c = log ((s − p) / (1 − s)) for a share

So a kernel runs once more, on S alone. Nothing cancels, because f ≥ 1. Below 1, c would be negative
and, where S has most of the row, all digits lost: then o and L are those of the other pairs, for
which a kernel runs too, and logit c = L_S − L + log f. For f = 0 that is o. A sink is a key without
a value: it counts in L.

Cost: attention to S; and that of a forward pass once more for L, unless PyTorch's kernel has
computed L beside o (on a CPU, without a mask, gradients or half precision). Memory: O(n · d).
SmolLM2 over 4,096 tokens, all heads, 256 keys: 1.05 × a forward pass, and 1.6 × with padding; a
mask of n × n takes 1.5 ×. Dropped: a column more of queries (1) and keys (log f / scale), in one
call of the kernel. It takes 0.95 × (noise: a tenth), but serves no share, no mask and no pairs that
differ between queries, and in half precision rounds log f (`python -m benchmarks.steer`).

Attention that a model writes down gets other scores before its softmax. Weights that a kernel has
returned are multiplied. `watch` gets the shift as a bias, and checks the output with it.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from weakref import WeakSet

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import attend_with_lse
from regard.attention.call import Attention
from regard.capture.call import Call, KernelCall, WrittenCall
from regard.capture.listener import CallSite, Rank
from regard.capture.masks import Sizes
from regard.capture.module_stack import Frame
from regard.capture.parse import ParsedCall, is_causal
from regard.capture.product import ChangedScores, Product, WeightMask, key_of
from regard.capture.reading import Reading, read_axes
from regard.capture.score_mask import MASKS, ScoreMask
from regard.capture.where import check_model
from regard.internals import in_functorch, without_torch_function
from regard.interventions.intervention import Intervention, check_heads
from regard.interventions.layers import Layer, Layers
from regard.interventions.recompute import (
    check_parsed,
    computed,
    parsed_with_gradient,
    recomputed,
    rows_of,
    with_rows,
)
from regard.interventions.shifted import Shifted
from regard.interventions.token_positions import Positions, QueryPositions, has_tokens
from regard.patterns import Cover, Pattern
from regard.patterns.pattern import Span, intersect
from regard.patterns.remapped import remapped
from regard.positions.bias import compose

_SPANS = 64
"""Into so many spans keys are cut to find rows that have one of the pairs."""

_LATEST = 8
"""So many patterns are remembered: layers of a model have one, two or three kinds, each of which
may be needed with and without the pairs."""

_ROUNDINGS = 16
"""So many roundings of the largest weight of a row may be between two softmaxes of it."""

_ROUNDED = 0.05
"""How far from 1 the sum of a row may be, by rounding in half precision."""


class Reweight(Intervention):
    """Multiplies weights of pairs, and divides rows by their new sums.

    Args:
        model: the model.
        pattern: the pairs.
        factor: the factor, at least 0.
        share: the share of each row that the pairs have at least, instead of a factor.
        layers: in which layers, as for `knock_out`.
        heads: for which heads.
        positions: the position of the first query of each call, where the call does not tell it.
        cross: whether queries and keys are two sequences.

    Raises:
        TypeError: model is no module, or heads or positions are no numbers.
        ValueError: a layer isn't there, or a head or position can't be.
    """

    rank = Rank.KNOCK_OUT

    def __init__(
        self,
        model: nn.Module,
        pattern: Pattern,
        factor: float = 0.0,
        share: float | None = None,
        *,
        layers: Iterable[Layer] | None = None,
        heads: Iterable[int] | None = None,
        positions: int | None = None,
        cross: bool | None = None,
    ) -> None:
        # 1. The heads.
        check_model(model)
        chosen = None if heads is None else sorted(set(heads))
        for head in chosen or ():
            if isinstance(head, bool) or not isinstance(head, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"heads must be whole numbers, got {head!r}")
            if head < 0:
                raise ValueError(f"heads: a head must be at least 0, got {head}")

        # 2. What is stated of calls.
        if positions is not None and (
            isinstance(positions, bool) or not isinstance(positions, int)  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise TypeError(f"positions must be the position of the first query, got {positions!r}")
        if positions is not None and positions < 0:
            raise ValueError(f"positions: the first query must be at 0 or later, got {positions}")
        if positions is not None and cross:
            raise ValueError("positions must be None with cross=True, where queries count from 0")

        super().__init__(model, Layers(model, layers, "layers"))
        self._pattern, self._heads = pattern, chosen
        self._factor, self._share = factor, share
        self._positions = QueryPositions(positions, cross)
        self._num_calls = 0
        self._intersections: deque[tuple[Pattern, Pattern, Pattern]] = deque(maxlen=_LATEST)
        self._done: WeakSet[Frame] = WeakSet()
        self.needs_heads = heads is not None or pattern.batch_size is not None

    @property
    def wants_lse(self) -> bool:
        # That which a kernel has computed has no gradient.
        return self._raises and not torch.is_grad_enabled() and not in_functorch()

    @property
    def _raises(self) -> bool:
        """Whether no pair gets less of its row."""
        return self._share is not None or self._factor >= 1.0

    @property
    def _changes(self) -> bool:
        return self._share is not None or self._factor != 1.0

    def site(self, module: nn.Module | None) -> CallSite | None:
        site = super().site(module)
        if site is None or self._positions.cross is None:
            return site
        return site._replace(cross=self._positions.cross)

    def changed(self, site: CallSite, call: Call) -> KernelCall | None:
        if isinstance(call, WrittenCall):
            # The scores were changed before the softmax.
            self._heads_of(site, call.axes.weights.shape[1])
            if self._changes:
                self._check_weights(site, call)
            return None
        self._check_site(site)
        num_heads = call.query.shape[1]
        heads = self._heads_of(site, num_heads)
        parsed = parsed_with_gradient(call, self.capture.masks, cross=site.cross is True)
        inputs = parsed.call
        pairs = self._in_call(site, parsed, call.key)
        rows = _affected(inputs, pairs)
        if not len(rows) or not heads or not self._changes:
            return None
        self._num_calls += 1
        check_parsed(call, inputs, self._num_calls)
        if self._share is not None and inputs.first_position is None:
            self.refuse(site, "a score bias needs consecutive query positions")

        if call.weights is not None:
            try:
                call, shift = self._from_weights(call, inputs, pairs, heads)
            except ValueError as error:
                self.refuse(site, str(error))
        elif self._share is None and self._factor == 0.0:
            remaining = self._intersected(inputs.pattern, ~pairs)
            call = recomputed(call, replace(inputs, pattern=remaining), heads, rows)
            shift = -torch.inf
        else:
            call, shift = self._joined(call, inputs, pairs, heads, rows)

        call = replace(call, original=call.output, kernel_lse=None)
        if not isinstance(shift, Tensor) and shift == -torch.inf and len(heads) == num_heads:
            return replace(call, pattern=intersect(call.pattern, ~pairs))
        first = inputs.first_position or 0
        shifted = Shifted(pairs, tuple(heads), num_heads, shift, first)
        return replace(call, bias=compose(call.bias, shifted))

    def _joined(
        self,
        call: KernelCall,
        inputs: Attention,
        pairs: Pattern,
        heads: list[int],
        rows: Int[Tensor, "rows"],
    ) -> tuple[KernelCall, float | Tensor]:
        """Return a call joined of the pairs and the whole, or the others, and the scores' shift."""
        # 1. Attention to the pairs alone.
        allowed = self._intersected(inputs.pattern, pairs)
        alone = replace(inputs, pattern=allowed, sinks=None)
        of_pairs, lse_of_pairs = computed(call, alone, heads, rows)
        assert lse_of_pairs is not None

        # 2. That to which it is joined.
        before = base = rows_of(call.output, heads, rows)
        if not self._raises:
            others = self._intersected(inputs.pattern, ~pairs)
            base, lse = computed(call, replace(inputs, pattern=others), heads, rows)
        elif call.kernel_lse is not None and not torch.is_grad_enabled():
            lse = rows_of(call.kernel_lse, heads, rows)
        else:
            _, lse = computed(call, inputs, heads, rows)
        assert lse is not None
        if call.sinks is not None:
            index = torch.tensor(heads, device=lse.device)
            lse = torch.logaddexp(lse, call.sinks[index].to(lse.dtype)[:, None])

        # 3. Rows that have none of the pairs stay bit by bit what they are.
        has_pairs = lse_of_pairs.isfinite()
        odds = torch.where(has_pairs, lse_of_pairs, 0.0) - torch.where(has_pairs, lse, 0.0)
        at, shift = self._odds(odds)
        share = torch.sigmoid(at)[..., None].to(torch.promote_types(base.dtype, torch.float32))
        output = torch.lerp(base.to(share.dtype), of_pairs.to(share.dtype), share)
        output = torch.where(has_pairs[..., None], output.to(before.dtype), before)

        # 4. The log-sum-exp, if the model gets it, and the shift.
        if call.lse is not None:
            is_all = lse == -torch.inf
            joined = torch.where(
                is_all, lse_of_pairs + math.log(self._factor or 1.0), lse + F.softplus(at)
            )
            lse = torch.where(has_pairs, joined, rows_of(call.lse, heads, rows))
        changed = with_rows(call, output, lse, heads, rows)
        if isinstance(shift, Tensor):
            shift = shift.masked_fill(~has_pairs, 0.0).detach()
            whole = shift.new_zeros(inputs.batch, inputs.num_heads, inputs.num_queries)
            index = torch.tensor(heads, device=shift.device)
            chosen = whole.index_select(1, index).index_copy(2, rows.to(shift.device), shift)
            shift = whole.index_copy(1, index, chosen)
        return changed, shift

    def _odds(
        self, odds: Float[Tensor, "batch some rows"]
    ) -> tuple[Float[Tensor, "batch some rows"], float | Float[Tensor, "batch some rows"]]:
        """Return logit c of each row, and the shift of the scores of its pairs.

        Args:
            odds: L_S − L of each row, where L is that of the other pairs if the factor is below 1.
        """
        if self._share is None:
            factor = self._factor - 1.0 if self._raises else self._factor
            return odds + math.log(factor), math.log(self._factor)
        share = odds.exp()
        has_less = share < self._share
        share = torch.where(has_less, share, 0.0)
        at = torch.log((self._share - share) / (1.0 - self._share))
        shift = _logit(self._share) - odds + torch.log1p(-share)
        return torch.where(has_less, at, -torch.inf), torch.where(has_less, shift, 0.0)

    def mask_scores(
        self, scores: Tensor, key_axis: int, mask: ScoreMask | None
    ) -> ChangedScores | None:
        site = self.site(None)
        if site is None or not self._changes:
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

            # 2. The pairs, but those that the model masks by itself.
            pairs = self._pairs(site, reading, key, has_mask=mask is not None)
            sheets[:, self._heads_of(site, sheets.shape[1])] = pairs[:, None].to(marks.dtype)
            if reading.masked is not None:
                sheets.masked_fill_(reading.masked, 0.0)
            flags = marks > 0
            changed = ChangedScores(scores, flags, sheets.shape, sheets.stride())
            if mask is None:
                flags = flags & (scores.detach() > -torch.inf)

            # 3. Their scores.
            if self._share is not None:
                shift = self._shift(site, scores, flags, mask_known=mask is not None)
                return replace(changed, scores=torch.where(flags, scores + shift, scores))
            if self._factor > 0.0:
                shifted = torch.where(flags, scores + math.log(self._factor), scores)
                return replace(changed, scores=shifted)
            empty = self._left_empty(site, scores, flags, mask)
            masked = scores.masked_fill(flags, -torch.inf).masked_fill(empty, 0.0)
            return replace(changed, scores=masked, empty=empty, masked=flags)

    def _left_empty(
        self, site: CallSite, scores: Tensor, flags: Tensor, mask: ScoreMask | None
    ) -> Bool[Tensor, "... rows 1"]:
        """Return the rows of scores without any pair but the flagged ones; their output is 0."""
        has_pairs = flags.any(dim=-1, keepdim=True)
        if mask is not None:
            left = ~flags if mask.masked is None else ~(flags | mask.masked)
            return has_pairs & ~left.any(dim=-1, keepdim=True)
        highest = scores.detach().masked_fill(flags, -torch.inf).amax(dim=-1, keepdim=True)
        if bool((has_pairs & _is_low(highest)).any()):
            self.refuse(site, "which pairs it masks is unknown")
        return has_pairs & (highest == -torch.inf)

    def _shift(
        self, site: CallSite, scores: Tensor, flags: Tensor, *, mask_known: bool
    ) -> Float[Tensor, "... rows 1"]:
        """Return what must be added to the scores of the flagged pairs for their share of a row."""
        assert self._share is not None
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        sums: list[Tensor] = []
        has_both = torch.ones_like(flags[..., :1])
        for chosen in (flags, ~flags):
            part = exact.masked_fill(~chosen, -torch.inf)
            highest = part.detach().amax(dim=-1, keepdim=True)
            if chosen is flags and not mask_known and bool(_is_low(highest).any()):
                # A mask, which a shift by as much would lift.
                self.refuse(site, "which pairs it masks is unknown")
            has_any = highest > -torch.inf
            has_both &= has_any
            sums.append(part.masked_fill(~has_any, 0.0).logsumexp(dim=-1, keepdim=True))
        shift = (_logit(self._share) - (sums[0] - sums[1])).clamp(min=0.0)
        return shift.masked_fill(~has_both, 0.0).to(scores.dtype)

    def _check_weights(self, site: CallSite, call: WrittenCall) -> None:
        """Refuse weights that are not those of the changed scores, in the axes read from these.

        Masked pairs must have weights of 0. Scores that were shifted must have become the weights
        by a softmax, and nothing else.
        """
        for parts in call.product.masked_scores:
            own, weights = parts.get(self), call.axes.weights
            if own is None:
                self.refuse(site, "its weights are no softmax of scores of queries and keys")
            is_shifted = own.masked is None
            expected = own.named(own.pairs)
            if is_shifted:
                *_, last = parts.values()
                expected = own.named(last.softmax())
            if not self.needs_heads and expected.shape[1] == 1:
                # All heads of all sequences have the same pairs, and may be in another order.
                weights = weights.flatten(0, 1)[:, None]
                if is_shifted:
                    expected, weights = (x.sort(dim=0).values for x in (expected, weights))
                else:
                    expected = expected.all(dim=0)[None]
            if expected.shape[1:] != weights.shape[1:]:
                self.refuse(site, "its weights are no softmax of scores of queries and keys")

            # A row in which the model has masked all pairs may be NaN.
            weights = weights.nan_to_num(0.0)
            if is_shifted:
                rounding = max(torch.finfo(x.dtype).eps for x in (weights, own.scores))
                limit = _ROUNDINGS * rounding * expected.amax(dim=-1, keepdim=True)
                different = (weights - expected).abs() > limit
            else:
                different = weights * expected
            if bool(different.any()):
                self.refuse(site, "the axes of its weights can't be told apart")

    def multiplied_again(self, site: CallSite) -> None:
        """Accept it: the weights are masked."""

    def _check_site(self, site: CallSite) -> None:
        """Refuse calls of which it isn't known where they stand."""
        if site.cross and self._layers.named is None:
            raise ValueError(
                f"layers: {site.name or 'the model'} is cross-attention, so name the layers "
                "that are to be changed"
            )
        if site.frame in self._done:
            self.refuse(site, "it calls attention several times, for parts of its sequence")
        self._done.add(site.frame)

    def _heads_of(self, site: CallSite, there: int) -> list[int]:
        if self._heads is None:
            return list(range(there))
        check_heads(site.name, self._heads, there)
        return self._heads

    def _in_call(self, site: CallSite, parsed: ParsedCall, key: Tensor) -> Pattern:
        """Return the pairs in the positions that a call has for its queries and keys."""
        inputs = parsed.call
        if inputs.first_position is None:
            # The caller lists the position of each query.
            return self._pattern
        stand = self._positions.of_call(site, parsed, key)
        sizes = (inputs.num_queries, inputs.num_keys)
        return self._moved(site, stand, sizes, key, inputs.first_position)

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
        stand = self._positions.of(site, queries, keys, said, key)
        moved = self._moved(site, stand, (queries, keys), key, first)
        moved.check(batch, range(first, keys), keys)
        positions = torch.arange(first, keys, device=reading.weights.device)
        return moved.dense(positions, keys)

    def _moved(
        self,
        site: CallSite,
        stand: Positions,
        sizes: tuple[int, int],
        key: Tensor | None,
        assumed: int,
    ) -> Pattern:
        """Return the pairs in the positions of a call.

        Args:
            site: the module.
            stand: the positions of its first query, which may be unknown, and key.
            sizes: the numbers of queries and keys.
            key: the keys, if known.
            assumed: the position of the first query in the result.
        """
        (queries, keys), first_query = sizes, stand.first_query
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

    def _intersected(self, pattern: Pattern, second: Pattern) -> Pattern:
        """Return what two patterns both allow, the same for all layers that have the same."""
        for allowed, other, both in self._intersections:
            if allowed is pattern and other == second:
                return both
        both = pattern & second
        self._intersections.append((pattern, second, both))
        return both

    def _from_weights(
        self, call: KernelCall, inputs: Attention, pairs: Pattern, heads: list[int]
    ) -> tuple[KernelCall, float | Float[Tensor, "batch heads queries"]]:
        """Return a call of which the kernel has written the weights down, and the scores' shift."""
        assert call.weights is not None
        weights = call.weights.to(torch.promote_types(call.weights.dtype, torch.float32))
        chosen = torch.zeros(weights.shape[1], dtype=torch.bool, device=weights.device)
        chosen[heads] = True

        # 1. The pairs, and what sinks take.
        positions = inputs.query_positions.to(weights.device)
        flags = pairs.dense(positions, weights.shape[3])[:, None] & chosen[:, None, None]
        sink, apart = _sinks_of(call, weights, inputs)
        if apart:
            weights = weights * (1.0 - sink)

        # 2. The factor.
        factor = shift = self._factor
        altered = flags.any(dim=-1, keepdim=True)
        if self._share is not None:
            share = weights.masked_fill(~flags, 0.0).sum(dim=-1, keepdim=True)
            altered = altered & (share > 0.0) & (share < self._share)
            share = torch.where(altered, share, self._share)
            factor = self._share / (1.0 - self._share) * (1.0 - share) / share
            shift = factor.log()[..., 0].detach()
        elif factor > 0.0:
            shift = math.log(factor)
        else:
            shift = -torch.inf
        raised = torch.where(flags, weights * factor, weights)

        # 3. Rows sum to 1 again; those without such a pair stay bit by bit what they are.
        raised = _normalised(raised, sink)
        value = call.value.to(raised.dtype)
        grouped = raised.view(len(raised), value.shape[1], -1, raised.shape[3])
        output = (grouped @ value).view(*raised.shape[:3], -1)
        if apart:
            raised = _normalised(raised, torch.zeros_like(sink))
        changed = replace(
            call,
            output=torch.where(altered, output.to(call.output.dtype), call.output),
            weights=torch.where(altered, raised.to(call.weights.dtype), call.weights),
        )
        return changed, shift


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


def _affected(inputs: Attention, pairs: Pattern) -> Int[Tensor, "rows"]:
    """Return the rows that may have one of some pairs, without visiting their pairs."""
    positions, num_keys = inputs.query_positions.cpu(), inputs.num_keys
    if not len(positions) or not num_keys:
        return positions[:0]
    low, high = (int(end) for end in positions.aminmax())
    pairs.check(inputs.batch, range(low, high + 1), num_keys)
    # A pair in a few keys counts only if the model may look at one of these.
    both = inputs.pattern & pairs
    sequences = torch.arange(both.batch_size or 1, device="cpu")[:, None, None]
    query = Span(positions[:, None], positions[:, None])
    first = torch.arange(0, num_keys, -(-num_keys // _SPANS), device="cpu")
    key = Span(first, torch.cat([first[1:], first.new_tensor([num_keys])]) - 1)
    codes = both.cover_spans(sequences, query, key)
    codes = codes.expand(len(sequences), len(positions), len(first))
    return (codes != Cover.NONE).any(dim=2).any(dim=0).nonzero().flatten()


def _normalised(
    weights: Float[Tensor, "batch heads queries keys"],
    sink: Float[Tensor, "batch heads queries 1"],
) -> Float[Tensor, "batch heads queries keys"]:
    """Return weights divided so that rows sum to 1 with their sinks; rows of zeros stay zeros."""
    total = weights.sum(dim=-1, keepdim=True) + sink
    return weights / total.masked_fill(total <= 0.0, 1.0)


def _logit(share: float) -> float:
    return math.log(share) - math.log1p(-share)


def _is_low(highest: Float[Tensor, "... rows 1"]) -> Bool[Tensor, "... rows 1"]:
    """Return the rows whose highest score may be that of a masked pair."""
    return (highest > -torch.inf) & (highest <= MASKS)


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
