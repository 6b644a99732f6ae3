"""One generator of attention modules: kernels × layouts × sizes × masks × what else people do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple
from zlib import crc32

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, HEAD_DIM, MEMORY = 4, 5, 2
WIDTH = HEADS * HEAD_DIM
SCALE = HEAD_DIM**-0.5

BY_HAND = ("einsum", "matmul", "baddbmm")
KERNELS = ("sdpa", *BY_HAND, "flex", "mha")
LAYOUTS = (
    "batch first",
    "heads first",
    "flat",
    "flat, heads first",
    "multi-query",
    "multi-query, queries first",
)
SIZES = {
    # Batch, queries and keys.
    "square": (3, 7, 7),
    "fewer queries": (3, 5, 7),
    "more queries": (3, 7, 5),
    "as many tokens as heads": (3, HEADS, HEADS),
    "one query": (3, 1, 7),
    "as many sequences as heads": (HEADS, 7, 7),
}
MASKS = ("none", "causal", "boolean", "additive", "bias", "padding right", "padding left")
WEIGHTS_CHANGED = ("gated", "mixed", "top 3", "split values")
KINDS = (
    "plain",
    *WEIGHTS_CHANGED,
    "memory first",
    "memory last",
    "cached",
    "cached by itself",
)
FILLS = (-torch.inf, -1e9, -1e4, torch.finfo(torch.float32).min)


@dataclass(frozen=True)
class Spec:
    """A module and a call of it.

    Attributes:
        kernel: the functions that compute attention.
        layout: the axes of their tensors.
        sizes: the name of batch, queries and keys.
        mask: the kind of mask.
        kind: what else the module does.
        stated: whether a module with two sequences says that it is cross-attention.
    """

    kernel: str
    layout: str
    sizes: str
    mask: str
    kind: str
    stated: bool = False

    @property
    def seed(self) -> int:
        """A number that differs between modules."""
        return crc32(str(self).encode())

    @property
    def fill(self) -> float:
        """The number that masks a pair."""
        return FILLS[self.seed % len(FILLS)]

    @property
    def is_cached(self) -> bool:
        """Whether the first keys are those of earlier tokens."""
        return self.kind.startswith("cached")

    @property
    def is_cross(self) -> bool:
        """Whether it has two sequences."""
        _, queries, keys = SIZES[self.sizes]
        return queries != keys and not self.is_cached

    @property
    def is_plain(self) -> bool:
        """Whether it must be understood: it is attention in the layout that kernels document."""
        return (
            self.kind == "plain"
            and self.layout == "batch first"
            and (not self.is_cross or self.stated or self.kernel == "mha")
        )

    def __str__(self) -> str:
        sizes = self.sizes + (", stated" if self.stated else "")
        return " · ".join((self.kernel, self.layout, sizes, self.mask, self.kind))


def specs() -> Iterator[Spec]:
    """Yield all modules that make sense."""
    for names in product(KERNELS, LAYOUTS, SIZES, MASKS, KINDS):
        spec = Spec(*names)
        if _makes_sense(spec):
            yield spec
            if spec.is_cross and spec.kernel != "mha":
                yield Spec(*names, stated=True)


def _makes_sense(spec: Spec) -> bool:
    _, queries, keys = SIZES[spec.sizes]
    by_hand = spec.kernel in BY_HAND
    rules = (
        by_hand or spec.kind not in WEIGHTS_CHANGED,
        spec.kernel in ("einsum", "matmul") or spec.layout != "multi-query, queries first",
        spec.kernel != "mha" or (spec.layout == "batch first" and not spec.is_cached),
        spec.kernel != "mha" or spec.kind != "memory first",
        spec.kernel != "flex" or spec.layout in ("batch first", "multi-query"),
        spec.kernel != "flex" or (spec.mask != "additive" and not spec.kind.startswith("memory")),
        not spec.is_cached or queries < keys,
        # A cache that is filled by another call has that call's masks too.
        spec.kind != "cached by itself" or spec.mask not in ("boolean", "additive", "bias"),
        # No order between two sequences.
        not (spec.is_cross and spec.mask == "causal"),
    )
    return all(rules)


class Inputs(NamedTuple):
    """What a module is given.

    Attributes:
        x: the tokens of the queries.
        context: the tokens of the keys; None if these are the same.
        prefix: tokens before x, whose keys and values are cached; None without a cache.
        allowed: the mask, [batch or 1, queries, keys], memory left out; None if all is allowed.
        bias: what is added to the scores, [heads, queries, keys].
        real: which queries are no padding, [batch, queries].
    """

    x: Tensor
    context: Tensor | None
    prefix: Tensor | None
    allowed: Tensor | None
    bias: Tensor | None
    real: Tensor


def inputs_of(spec: Spec) -> Inputs:
    """Draw the inputs of a module."""
    batch, queries, keys = SIZES[spec.sizes]
    chance = torch.Generator().manual_seed(spec.seed)

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=chance)

    x = drawn(batch, queries, WIDTH)
    first = keys - queries if spec.is_cached else 0
    rows, columns = torch.arange(queries)[:, None], torch.arange(keys)
    sequence = torch.arange(batch)[:, None, None]
    order = (columns <= rows + first)[None]
    # Each query has a key, and each key a query: one without any is padding.
    scattered = (torch.rand(1, queries, keys, generator=chance) < 0.7) | (columns < 2)
    scattered = scattered | (rows == columns % queries)
    right = (columns < keys - sequence.clamp(max=2)).expand(batch, queries, keys)
    left = (columns >= sequence.clamp(max=2)).expand(batch, queries, keys)
    if not spec.is_cross:
        # As in decoders: padded rows at the left have nothing to attend to.
        left, right = left & order, right & order
    allowed = {
        "causal": order,
        "boolean": scattered,
        "additive": scattered,
        "padding right": right,
        "padding left": left,
    }.get(spec.mask)
    real = torch.ones(batch, queries, dtype=torch.bool)
    if queries == keys and spec.mask.startswith("padding"):
        real = allowed[:, -1] if allowed is not None else real
    return Inputs(
        x,
        drawn(batch, keys, WIDTH) if spec.is_cross else None,
        drawn(batch, first, WIDTH) if spec.is_cached else None,
        allowed,
        drawn(HEADS, queries, keys) if spec.mask == "bias" else None,
        real,
    )


class Attention(nn.Module):
    """The module of a `Spec`."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec, self.num_heads = spec, HEADS
        self.key_heads = 1 if spec.layout.startswith("multi-query") else HEADS
        self.q_proj = nn.Linear(WIDTH, WIDTH)
        self.k_proj = nn.Linear(WIDTH, self.key_heads * HEAD_DIM)
        self.v_proj = nn.Linear(WIDTH, self.key_heads * HEAD_DIM)
        self.o_proj = nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Parameter(torch.empty(HEADS))
        self.mix = nn.Parameter(torch.empty(HEADS, HEADS))
        self.memory_key = nn.Parameter(torch.empty(1, self.key_heads, MEMORY, HEAD_DIM))
        self.memory_value = nn.Parameter(torch.empty(1, self.key_heads, MEMORY, HEAD_DIM))
        if spec.stated:
            self.is_cross_attention = True
        if spec.kernel == "mha":
            extra = spec.kind == "memory last"
            self.mha = nn.MultiheadAttention(
                WIDTH, HEADS, batch_first=True, add_bias_kv=extra, add_zero_attn=extra
            )
        torch.manual_seed(spec.seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)
        self.cache: tuple[Tensor, Tensor] | None = None

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        allowed: Tensor | None = None,
        bias: Tensor | None = None,
        past: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        if self.spec.kernel == "mha":
            return self._by_torch(x, x if context is None else context, allowed, bias)
        key, value = self.keys(x if context is None else context)
        past = self.cache if past is None else past
        if past is not None:
            key, value = (torch.cat(both, dim=2) for both in zip(past, (key, value), strict=True))
        if self.spec.kind == "cached by itself":
            self.cache = key, value
        if self.spec.kind.startswith("memory"):
            key = self._with_memory(key, self.memory_key)
            value = self._with_memory(value, self.memory_value)
        query = self.q_proj(x).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
        allowed, bias = self._mask_of_memory(allowed, True), self._mask_of_memory(bias, 0.0)
        run = {"sdpa": self._sdpa, "flex": self._flex}.get(self.spec.kernel, self._by_hand)
        output = run(query, key, value, allowed, bias)
        return self.o_proj(output.transpose(1, 2).flatten(2))

    def keys(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values, [batch, key_heads, keys, head_dim]."""
        sizes = (self.key_heads, HEAD_DIM)
        key, value = (layer(tokens).unflatten(-1, sizes) for layer in (self.k_proj, self.v_proj))
        return key.transpose(1, 2), value.transpose(1, 2)

    def _with_memory(self, tensor: Tensor, memory: Tensor) -> Tensor:
        parts = [memory.expand(len(tensor), -1, -1, -1), tensor]
        return torch.cat(parts if self.spec.kind == "memory first" else parts[::-1], dim=2)

    def _mask_of_memory(self, mask: Tensor | None, value: Any) -> Tensor | None:
        if mask is None or not self.spec.kind.startswith("memory"):
            return mask
        return F.pad(
            mask, (MEMORY, 0) if self.spec.kind == "memory first" else (0, MEMORY), value=value
        )

    # The layout of the spec, from and to [batch, heads, …, …].

    def _laid_out(self, tensor: Tensor) -> Tensor:
        match self.spec.layout:
            case "heads first":
                return tensor.transpose(0, 1)
            case "flat":
                return tensor.flatten(0, 1)
            case "flat, heads first":
                return tensor.transpose(0, 1).flatten(0, 1)
            case "multi-query, queries first":
                return tensor.transpose(1, 2)
            case _:
                return tensor

    def _back(self, tensor: Tensor, batch: int) -> Tensor:
        match self.spec.layout:
            case "heads first":
                return tensor.transpose(0, 1)
            case "flat":
                return tensor.unflatten(0, (batch, HEADS))
            case "flat, heads first":
                return tensor.unflatten(0, (HEADS, batch)).transpose(0, 1)
            case "multi-query, queries first":
                return tensor.transpose(1, 2)
            case _:
                return tensor

    def _mask(self, mask: Tensor, batch: int) -> Tensor:
        """Return a mask [batch or 1, heads or 1, queries, keys] in the layout."""
        if self.spec.layout.startswith("flat"):
            mask = mask.expand(batch, HEADS, -1, -1)
        return self._laid_out(mask)

    # Kernels.

    def _sdpa(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        batch, options = len(query), {}
        if self.spec.layout == "multi-query":
            options["enable_gqa"] = True
        square = query.shape[2] == key.shape[2]
        if self.spec.mask == "causal" and square and self.spec.seed % 2:
            options["is_causal"] = True
        elif bias is not None:
            options["attn_mask"] = self._mask(bias[None], batch)
        elif allowed is not None:
            mask = self._mask(allowed[:, None], batch)
            if self.spec.mask == "additive" or self.spec.seed % 4 > 1:
                mask = torch.zeros(mask.shape).masked_fill(~mask, self.spec.fill).to(query.dtype)
            options["attn_mask"] = mask
        query, key, value = map(self._laid_out, (query, key, value))
        return self._back(F.scaled_dot_product_attention(query, key, value, **options), batch)

    def _flex(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        batch, options = len(query), {}
        if self.spec.layout == "multi-query":
            options["enable_gqa"] = True
        if bias is not None:
            options["score_mod"] = lambda score, b, h, q, k: score + bias[h, q, k]
        if allowed is not None:
            mask = allowed.expand(batch, -1, -1)

            def allows(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
                return mask[b, q, k]

            sizes = (batch, None, query.shape[2], key.shape[2])
            options["block_mask"] = create_block_mask(allows, *sizes, device="cpu")
        return flex_attention(query, key, value, **options)

    def _by_hand(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        batch, shared = len(query), self.key_heads == 1
        queries, keys = query.shape[2], key.shape[2]
        if shared and self.spec.kernel == "baddbmm":
            key, value = (x.expand(-1, HEADS, -1, -1) for x in (key, value))
        query, key, value = map(self._laid_out, (query, key, value))
        if shared and self.spec.layout == "multi-query, queries first":
            key, value = (x.transpose(1, 2) for x in (key, value))
        added = None if bias is None else self._mask(bias[None], batch)
        scores = self._scores(query, key, added)
        if allowed is not None:
            scores = self._masked(scores, self._mask(allowed[:, None], batch))
        weights = scores.softmax(dim=-1)
        match self.spec.kind:
            case "gated":
                gate = self.gate.sigmoid()[None, :, None, None].expand(batch, -1, queries, keys)
                weights = weights * self._laid_out(gate)
            case "mixed":
                mixed = torch.einsum("gh,bhqk->bgqk", self.mix, self._back(weights, batch))
                weights = self._laid_out(mixed)
            case "top 3":
                least = weights.topk(3, dim=-1).values[..., -1:]
                weights = torch.where(weights >= least, weights, 0.0)
            case "split values":
                halves = (value[..., :2], value[..., 2:])
                parts = [self._product(weights, half) for half in halves]
                return self._back(torch.cat(parts, dim=-1), batch)
            case _:
                pass
        return self._back(self._product(weights, value), batch)

    def _scores(self, query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
        shape = (*query.shape[:-1], key.shape[-2])
        if self.spec.kernel == "baddbmm":
            query, key = (x.flatten(end_dim=-3) for x in (query, key))
            sizes = (*query.shape[:2], key.shape[1])
            added = query.new_zeros(1).expand(sizes)
            if bias is not None:
                added = bias.expand(shape).reshape(sizes)
            beta = 0 if bias is None else 1
            return torch.baddbmm(added, query, key.mT, beta=beta, alpha=SCALE).view(shape)
        if self.spec.kernel == "einsum":
            letters = "...qd,...kd->...qk"
            if self.key_heads == 1:
                letters, key = _SHARED[self.spec.layout][0], key[:, 0]
            scores = torch.einsum(letters, query, key) * SCALE
        else:
            scores = query @ key.mT * SCALE
        return scores if bias is None else scores + bias

    def _product(self, weights: Tensor, value: Tensor) -> Tensor:
        if self.spec.kernel == "baddbmm":
            shape = (*weights.shape[:-1], value.shape[-1])
            weights, value = (x.flatten(end_dim=-3) for x in (weights, value))
            return torch.bmm(weights, value).view(shape)
        if self.spec.kernel == "einsum":
            letters = "...qk,...kd->...qd"
            if self.key_heads == 1:
                letters, value = _SHARED[self.spec.layout][1], value[:, 0]
            return torch.einsum(letters, weights, value)
        return weights @ value

    def _masked(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """Mask scores in one of the usual ways."""
        fill = self.spec.fill
        if self.spec.mask == "additive" or self.spec.seed % 3 == 0:
            return scores + torch.zeros(allowed.shape).masked_fill(~allowed, fill).to(scores.dtype)
        if self.spec.seed % 3 == 1:
            return torch.where(allowed, scores, fill)
        return scores.masked_fill(~allowed, fill)

    def _by_torch(
        self, x: Tensor, context: Tensor, allowed: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        mask = None
        if allowed is not None:
            mask = ~allowed.repeat_interleave(HEADS if len(allowed) > 1 else 1, dim=0)
            mask = mask if len(allowed) > 1 else mask[0]
        if bias is not None:
            mask = bias.repeat(len(x), 1, 1)
        writes = bool(self.spec.seed % 2)
        return self.mha(x, context, context, attn_mask=mask, need_weights=writes)[0]


_SHARED = {
    "multi-query": ("bhqd,bkd->bhqk", "bhqk,bkd->bhqd"),
    "multi-query, queries first": ("bqhd,bkd->bqhk", "bqhk,bkd->bqhd"),
}
"""How keys and values are multiplied that all heads share."""


def runner(model: Attention, given: Inputs) -> Callable[[], Tensor]:
    """Return a function that runs a module on its inputs, as its users do."""
    options: dict[str, Any] = {"allowed": given.allowed, "bias": given.bias}
    options |= {"context": given.context}
    options = {name: x for name, x in options.items() if x is not None}
    if given.prefix is None:
        return partial(model, given.x, **options)
    if model.spec.kind == "cached":
        with torch.no_grad():
            past = model.keys(given.prefix)
        return partial(model, given.x, past=past, **options)

    first = prefix_mask(model.spec, given)

    def twice() -> Tensor:
        model.cache = None
        model(given.prefix, **({} if first is None else {"allowed": first}))
        return model(given.x, **options)

    return twice


def prefix_mask(spec: Spec, given: Inputs) -> Tensor | None:
    """Return the mask of the call that fills a cache."""
    assert given.prefix is not None
    length = given.prefix.shape[1]
    if given.allowed is None:
        return None
    order = torch.ones(length, length, dtype=torch.bool).tril()
    return given.allowed[:, -1:, :length] & order
