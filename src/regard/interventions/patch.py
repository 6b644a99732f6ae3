"""`patch`: heads that get a part of another run of the model.

With q, k, v of this run and q′, k′, v′ of the other one, a head returns for its patched positions

    part        this head computes                        of the other run
    output      A′ v′                                     the rows of the result
    query       softmax(q′ kᵀ + bias) v                   the rows of q
    key         softmax(q k′ᵀ + bias) v                   the rows of k, in all columns of scores
    value       A v′                                      the rows of v
    weights     softmax(q′ k′ᵀ + bias) v                  the rows of the weights

Bias, mask and sinks are those of this run. Only patched heads and their rows are computed again, by
the kernel, in memory n · d. Rows of patched weights are scores of other queries *and* other keys;
beside rows of this run, they are one call of twice the features:

    query   [ q  0  ]      key  [ k  k′ ]       scores   q kᵀ       of rows that stay
            [ 0  q′ ]                                    q′ k′ᵀ     of patched rows

Query heads that share a key head are patched one by one: the key head is repeated for each of them.

A position is patched in whichever call computes it. In a generated text that is one step for an
output or a query. Keys and values are cached by the model, so each later call is patched again:
what is patched is what a model would have cached, and the text is that of a model without a cache.

Queries and keys are captured after rotary encoding, so they hold their position, and can't be moved
to another one: refused, as are encodings whose angles depend on the length of the text.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.call import Attention
from regard.calls.call import AttentionCall
from regard.capture.call import Call, KernelCall, UnreadableError, WrittenCall
from regard.capture.captured import num_used_keys
from regard.capture.listener import CallSite, Rank
from regard.capture.parse import is_causal
from regard.capture.seen import Seen
from regard.capture.where import check_model
from regard.interventions.donors import Donors, is_whole, sizes
from regard.interventions.intervention import Intervention, check_heads, checked_pairs
from regard.interventions.layers import Layer, Layers
from regard.interventions.recompute import check_parsed, parsed_with_gradient, put, recomputed
from regard.interventions.token_positions import QueryPositions
from regard.patterns import Pattern
from regard.patterns.padding import Padding

Rows = Int[Tensor, "chosen"]

Part = Literal["output", "query", "key", "value", "weights"]

At = Iterable[int | range | tuple[int, int] | tuple[range, range]]
"""Positions, or pairs of positions: of the other run, and of this one."""

_ROTATED = ("query", "key", "weights")
"""The parts that hold their position."""

_BY_LENGTH = ("dynamic", "longrope")
"""The rotary encodings of transformers whose angles depend on the length of the text."""


@contextmanager
def patch(
    model: nn.Module,
    seen: Seen,
    heads: Iterable[tuple[Layer, int]] = (),
    *,
    part: Part = "output",
    key_heads: Iterable[tuple[Layer, int]] = (),
    at: At | None = None,
) -> Generator[None]:
    """Give heads a part of another run while a model runs: activation patching.

        with regard.watch(model, values=True) as seen:
            model(**other)
        with regard.patch(model, seen, heads=[(5, 3)], part="value"):
            logits = model(**inputs).logits

    Only the patched heads are computed again, by the kernel, with the mask, bias and sinks of this
    run; nothing is n × n. It works in `generate` with a cache, where keys and values that are
    patched are those that later steps see, with gradients (of this run), and together with `watch`,
    which shows what was computed, `knock_out`, whose pairs stay masked, and `ablate`. Patched
    outputs and ablated heads replace each other in the order of their blocks. After the block
    nothing is left behind. A model that is checkpointed computes its calls again in the backward
    pass, so that this has to run inside the block too.

    Args:
        model: any model that `watch` understands. Only its calls in this thread are altered.
        seen: the calls of one run of it on the other text, watched with `values=True`; as many
            sequences as there are now, or one for all. If a module calls attention several times in
            a run, its n-th call gets the part of the n-th.
        heads: the heads, as for `ablate`. Those that share a key head are patched alone.
        part: what they get. "output": what the head returned. "query", "key" or "value": that
            tensor; the rest of the head is computed anew. "weights": the weights
            softmax(q′ k′ᵀ + bias) of the queries and keys of the other run, under the bias, mask
            and sinks of this run; they are applied to the values of this run. Attention that a
            model writes down itself has its output patched only.
        key_heads: key heads in the same form, for "key" and "value": all query heads of each.
        at: the positions that are patched, such as `[3, range(5, 8)]`, of the query, or for "key"
            and "value" of the key. All by default, if the two texts have the same length; a text
            that is generated goes on. Where the texts differ, pairs say which position of the other
            text comes to which of this one, such as `[(3, 5), (range(6, 8), range(8, 10))]`, for
            "output" and "value" only.

    Raises:
        TypeError: model is no module, or heads are no pairs.
        ValueError: heads names a layer or a head that isn't there, the two runs don't fit together,
            or a call can't be altered exactly; the message says why.
        RuntimeError: a layer has not called attention inside the block, or less often than when it
            was watched, or not at the positions; or it would be computed again, unaltered, by a
            backward pass after the block.

    >>> import torch, regard
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x, other = torch.randn(2, 1, 5, 8).unbind()
    >>> with regard.watch(layer, values=True) as seen:
    ...     expected, _ = layer(other, other, other)
    >>> with regard.patch(layer, seen, heads=[("", 0), ("", 1)]):
    ...     output, _ = layer(x, x, x)
    >>> torch.allclose(output, expected, atol=1e-6)
    True
    """
    check_model(model)
    if not isinstance(seen, Seen):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"seen must be what watch saw, got {type(seen).__name__}")
    if part not in get_args(Part):
        raise ValueError(f"part must be one of {', '.join(get_args(Part))}, got {part!r}")
    chosen, groups = checked_pairs(heads, "heads"), checked_pairs(key_heads, "key_heads")
    if not chosen and not groups:
        raise ValueError("heads must name at least one head")
    if groups and part not in ("key", "value"):
        raise ValueError(f'key_heads is for part="key" and part="value", got part={part!r}')
    moves = None if at is None else _moves(at)
    if moves is not None and part in _ROTATED and any(here != it for here, it in moves.items()):
        raise ValueError(
            f'at: part="{part}" holds its position, which rotary encodings turn into angles, so '
            "it can't be moved to another position"
        )
    layers = Layers(model, [layer for layer, _ in (*chosen, *groups)], "heads")
    with _Patch(model, layers, seen, chosen, groups, part, moves):
        yield


def _moves(at: At) -> dict[int, int]:
    """Return the position in the other run of each position in this one.

    Raises:
        TypeError: an entry is no position, span, or pair of these.
        ValueError: two spans differ in length, or a position is named twice or below 0.
    """
    moves: dict[int, int] = {}
    for entry in at:
        # A position, a span, or a pair of these.
        pair = entry if isinstance(entry, tuple) else (entry, entry)
        sides = [range(side, side + 1) if isinstance(side, int) else side for side in pair]
        if len(sides) != 2 or any(
            not isinstance(side, range) or isinstance(raw, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
            for side, raw in zip(sides, pair, strict=True)
        ):
            raise TypeError(f"at: must have positions, ranges or pairs of these, got {entry!r}")

        there, here = sides
        if len(there) != len(here):
            raise ValueError(f"at: both spans must have the same length, got {entry!r}")
        for source, target in zip(there, here, strict=True):
            if source < 0 or target < 0:
                raise ValueError(f"at: positions are counted from 0, got {entry!r}")
            if target in moves:
                raise ValueError(f"at: position {target} is named twice")
            moves[target] = source
    if not moves:
        raise ValueError("at must name at least one position")
    return moves


class _Patch(Intervention):
    """Gives heads a part of another run; arguments as for `patch`."""

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        seen: Seen,
        heads: list[tuple[Layer, int]],
        key_heads: list[tuple[Layer, int]],
        part: Part,
        moves: Mapping[int, int] | None,
    ) -> None:
        super().__init__(model, layers)
        # Outputs are replaced after everything that changes how they are computed.
        self.rank = Rank.ABLATE if part == "output" else Rank.PATCH
        self._donors, self._part, self._moves = Donors(seen), part, moves
        self._heads, self._key_heads = heads, key_heads
        self._positions = QueryPositions()
        # By module: positions that were patched, with at=; and the length of its text, without.
        self._patched: dict[str, set[int]] = {}
        self._longest: dict[str, int] = {}
        self._num_checks = 0

    def _check_end(self) -> None:
        super()._check_end()
        self._donors.check()
        for name, patched in self._patched.items():
            missing = sorted(set(self._moves or ()) - patched)
            if missing:
                raise RuntimeError(
                    f"at: {name or 'the model'} has had no position {missing[0]} inside the block"
                )

    def on_run_end(self) -> None:
        self._donors.end_run()

    def changed(self, site: CallSite, call: Call) -> Call | None:
        donor = self._donors.of(site, call.output)
        heads = self._heads_of(site, donor)
        if isinstance(call, WrittenCall):
            if self._part != "output":
                self.refuse(
                    site,
                    "the model writes it down, so that only its output can be patched, not its "
                    f"{self._part}",
                )
            queries, keys = call.axes.weights.shape[2:]
            stand = self._positions.of(site, queries, keys, 0 if queries == keys else None, None)
            rows, there = self._places(site, donor, stand.first_query, (queries, keys))
            return self._with_output(call, donor, heads, rows, there) if len(rows) else None

        # The call, and the positions of its queries and keys.
        parsed = parsed_with_gradient(call, self.capture.masks, cross=site.cross is True)
        inputs, stand = parsed.call, self._positions.of_call(site, parsed, call.key)
        of_keys = self._part in ("key", "value") and stand.first_query is not None
        first = stand.first_key if of_keys else stand.first_query
        here = (inputs.num_queries, num_used_keys(inputs))
        rows, there = self._places(site, donor, first, here)
        if not len(rows):
            return None
        if self._part == "output":
            return self._with_output(call, donor, heads, rows, there)

        self._num_checks += 1
        check_parsed(call, inputs, self._num_checks, by_scores=True)
        if self._part in _ROTATED:
            self._check_rotation(site, inputs, donor, stand.first_key + here[1])
        if self._part == "weights":
            is_known = is_causal(inputs.pattern) or here[1] <= sizes(donor)[1]
            if stand.first_key or not is_known:
                self.refuse(site, "it has other keys than when it was watched")
        return self._with_inputs(call, inputs, donor, heads, rows, there)

    def _heads_of(self, site: CallSite, donor: AttentionCall) -> list[int]:
        """Return the patched heads, those of patched key heads too."""
        heads = self._layers.heads_of(site.name, self._heads)
        check_heads(site.name, heads, donor.heads)
        group = donor.heads // donor.key_heads
        key_heads = self._layers.heads_of(site.name, self._key_heads)
        if key_heads and key_heads[-1] >= donor.key_heads:
            raise ValueError(
                f"key_heads: {site.name} has {donor.key_heads} key heads, counted from 0, got key "
                f"head {key_heads[-1]}"
            )
        return sorted({*heads}.union(*(range(k * group, (k + 1) * group) for k in key_heads)))

    # Positions.

    def _places(
        self, site: CallSite, donor: AttentionCall, first: int | None, here: tuple[int, int]
    ) -> tuple[Rows, Rows]:
        """Return which rows of a call are patched, and by which of the donor.

        Args:
            site: the module.
            donor: the donor.
            first: the position of the first row; None if unknown.
            here: the numbers of queries and used keys of the call.
        """
        axis = 1 if self._part in ("key", "value") else 0
        count, there = here[axis], sizes(donor)[axis]
        longest = self._longest.get(site.name, 0)
        if first is None or not is_whole(donor):
            # Of two steps, or two sequences, the rows of calls that are alike are the same ones. A
            # later call is not compared with anything.
            alike = here == sizes(donor) and self._moves is None and not longest
            if not alike or self._part in _ROTATED:
                self.refuse(site, f"which positions it has, or {donor} had, is unknown")
            first = 0

        name = site.name or "the model"
        if self._moves is None:
            is_same = (first, count) == (0, there)
            # Later, steps of a generated text: what follows, or all of it and one token more.
            is_step = longest and first + count >= there and (first or count <= longest + 1)
            if not (is_same or is_step):
                raise ValueError(
                    f"at: {name} has {count} positions from {first} on, and had {there} when it "
                    "was watched: say which are patched"
                )
            self._longest[site.name] = max(longest, first + count)
            rows = torch.arange(first, max(first, min(there, first + count)), device="cpu")
            return rows - first, rows

        highest = max(self._moves.values())
        if highest >= there:
            raise ValueError(
                f"at: {name} had {there} positions when it was watched, counted from 0, "
                f"got position {highest}"
            )
        computed = sorted(row for row in self._moves if first <= row < first + count)
        self._patched.setdefault(site.name, set()).update(computed)
        rows = torch.tensor(computed, dtype=torch.long, device="cpu") - first
        sources = [self._moves[row] for row in computed]
        return rows, torch.tensor(sources, dtype=torch.long, device="cpu")

    # What is changed.

    def _with_output(
        self, call: Call, donor: AttentionCall, heads: list[int], rows: Rows, there: Rows
    ) -> Call:
        """Return a call with outputs of the donor."""
        new = self._donors.output(donor, heads)
        return call.with_output(_patched(call.returned, new, heads, rows, there))

    def _with_inputs(
        self,
        call: KernelCall,
        inputs: Attention,
        donor: AttentionCall,
        heads: list[int],
        rows: Rows,
        there: Rows,
    ) -> KernelCall:
        """Return a call in which heads were computed with queries, keys or values of the donor.

        Args:
            call: the call.
            inputs: the same, interpreted.
            donor: the donor.
            heads: the heads.
            rows: the patched rows of queries, or of keys and values.
            there: those of the donor.
        """
        query, key, value = call.query, call.key, call.value
        computed = rows

        # 1. Each query head gets a key head of its own, unless it is patched in all of them.
        groups = sorted({head // inputs.group for head in heads})
        own, of_own = groups, [group * inputs.group for group in groups]
        if self._part != "query" and len(heads) < len(groups) * inputs.group:
            key, value = (x.repeat_interleave(inputs.group, dim=1) for x in (key, value))
            own = of_own = heads
        # Another intervention may have repeated the key heads of one of the two runs.
        there_own = [head // (donor.heads // donor.key_heads) for head in of_own]

        # 2. The part of the donor.
        if self._part == "query":
            query = _patched(query, donor.query[:, heads], heads, rows, there)
        elif self._part == "key":
            key = _patched(key, donor.key[:, there_own], own, rows, there)
        elif self._part == "value":
            value = _patched(value, donor.value[:, there_own], own, rows, there)
        else:
            # Keys behind those of the donor are masked for its queries.
            both = torch.arange(min(num_used_keys(inputs), sizes(donor)[1]), device="cpu")
            others = _patched(torch.zeros_like(key), donor.key[:, there_own], own, both, both)
            key = torch.cat([key, others], dim=-1)
            none = torch.zeros_like(query)
            stay = _patched(query, none[:, heads], heads, rows, rows)
            changed = _patched(none, donor.query[:, heads], heads, rows, there)
            query = torch.cat([stay, changed], dim=-1)

        # 3. The heads again; keys and values may change any row.
        if self._part in ("key", "value"):
            computed = torch.arange(inputs.num_queries, device="cpu")
        new = replace(call, query=query, key=key, value=value, scale=inputs.scale)
        new = recomputed(new, replace(inputs, query=query, key=key), heads, computed)
        return replace(new, original=new.output, kernel_lse=None)

    def _check_rotation(
        self, site: CallSite, inputs: Attention, donor: AttentionCall, length: int
    ) -> None:
        """Refuse queries and keys whose rotary encoding may have had other angles."""
        if donor.scores.call.scale != inputs.scale:
            self.refuse(site, "its scale is another one than when it was watched")
        parameters = getattr(getattr(site.module, "config", None), "rope_parameters", None) or {}
        kinds = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
        by_length = any(kind.get("rope_type") in _BY_LENGTH for kind in kinds)
        if by_length and length != sizes(donor)[1]:
            self.refuse(site, "the angles of its rotary encoding depend on the length of the text")
        count = min(inputs.num_keys, donor.keys)
        if not _same_padding(inputs.pattern, donor.scores.call.pattern, count):
            self.refuse(
                site, "its padding is another than when it was watched, and so are positions"
            )


def _patched(
    old: Float[Tensor, "batch heads rows dim"],
    new: Float[Tensor, "batch_or_1 some rows_there dim"],
    heads: list[int],
    rows: Rows,
    there: Rows,
) -> Float[Tensor, "batch heads rows dim"]:
    """Return a tensor with other numbers in some rows of some heads.

    Args:
        old: the tensor.
        new: the other numbers, of these heads.
        heads: the heads.
        rows: the rows.
        there: their numbers in `new`.
    """
    if new.shape[-1] != old.shape[-1]:
        raise UnreadableError(
            f"it has {old.shape[-1]} features, and had {new.shape[-1]} when it was watched"
        )
    device = old.device
    new = new.to(old)[:, :, there.to(device)].expand(len(old), -1, -1, -1)
    return put(old, new, torch.tensor(heads, device=device), rows.to(device))


def _same_padding(first: Pattern, second: Pattern, num_keys: int) -> bool:
    """Return whether two patterns have the same padding among the first keys."""
    sides: list[Bool[Tensor, "batch_or_1 keys"]] = []
    for pattern in (first, second):
        leaves = [*pattern.leaves()]
        if any(leaf.batch_size is not None and not isinstance(leaf, Padding) for leaf in leaves):
            # A mask of any kind may be one of padding.
            return first == second
        keys = torch.arange(num_keys)
        batch = torch.arange(pattern.batch_size or 1)[:, None]
        allowed = torch.ones(len(batch), num_keys, dtype=torch.bool)
        for leaf in leaves:
            if isinstance(leaf, Padding):
                allowed = allowed & leaf.test(batch, keys, keys)
        sides.append(allowed)
    return bool((sides[0] == sides[1]).all())
