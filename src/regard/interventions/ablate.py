"""`ablate`: heads whose output is taken away."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.capture.call import Call, KernelCall, WrittenCall
from regard.capture.listener import CallSite, Rank
from regard.capture.parse import parse_call
from regard.capture.product import key_of
from regard.capture.where import check_model
from regard.interventions.intervention import Intervention, check_heads, checked_pairs
from regard.interventions.layers import Layer, Layers
from regard.interventions.token_positions import is_memory, positions_of
from regard.patterns.documents import Documents
from regard.patterns.from_mask import FromMask
from regard.patterns.padding import Padding

_UNKNOWN_PADDING = 'by="mean" leaves padding out, and which tokens are padding is unknown'
_UNKNOWN_MASK = 'by="mean" leaves padding out, and which pairs it masks is unknown'

Heads = Float[Tensor, "batch heads queries value_dim"]


@contextmanager
def ablate(
    model: nn.Module, heads: Iterable[tuple[Layer, int]], *, by: Literal["zero", "mean"] = "zero"
) -> Generator[None]:
    """Take the output of some heads away while a model runs, before the output projection.

        with regard.ablate(model, heads=[(5, 3), (7, 0)]):
            logits = model(**inputs).logits

    Kernels stay what they are. It works in `generate` with a cache, with gradients, and together
    with `watch`, in any order: `watch` sees what the heads looked at, as ever. After the block
    nothing is left behind. A model that is checkpointed computes its calls again in the backward
    pass, so that this has to run inside the block too.

    Args:
        model: any model that `watch` understands. Only its calls in this thread are altered.
        heads: the heads, each as (layer, head), counted from 0. A layer is its number, or the path
            of a module as `watch` shows it, such as "model.decoder.layers.0.encoder_attn", with
            wildcards if need be. A number that means several modules, as in encoder–decoders, is
            refused when they run. A module that several layers share is altered in each.
        by: what takes the place of a head's output: "zero", or "mean", its mean over the positions
            of the sequence, padding left out, where all of them are in one call. Outputs of another
            run are given by `patch`.

    Raises:
        TypeError: model is no module, or heads are no pairs.
        ValueError: heads names a layer or a head that isn't there, by is unknown, or a call can't
            be altered exactly; the message says why.
        RuntimeError: a layer has not called attention inside the block, or would be computed again,
            unaltered, by a backward pass after it.

    >>> import torch, regard
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> with regard.ablate(layer, heads=[("", 0), ("", 1)]):
    ...     output, _ = layer(x, x, x)
    >>> bool((output == layer.out_proj.bias).all())
    True
    """
    check_model(model)
    chosen = checked_pairs(heads, "heads")
    if by not in ("zero", "mean"):
        raise ValueError(f'by must be "zero" or "mean", got {by!r}; for another run, use patch')
    with _Ablation(model, Layers(model, [layer for layer, _ in chosen], "heads"), chosen, by):
        yield


class _Ablation(Intervention):
    """Takes the output of heads away; arguments as for `ablate`."""

    rank = Rank.ABLATE

    def __init__(
        self, model: nn.Module, layers: Layers, heads: list[tuple[Layer, int]], by: str
    ) -> None:
        super().__init__(model, layers)
        self._heads, self._by = heads, by

    def changed(self, site: CallSite, call: Call) -> Call:
        heads = self._layers.heads_of(site.name, self._heads)
        check_heads(site.name, heads, call.output.shape[1])
        new: Tensor | None = None
        if self._by == "mean":
            tokens = (
                self._tokens_of_kernel(site, call)
                if isinstance(call, KernelCall)
                else self._tokens_by_mask(site, call)
            )
            new = _mean(call.output[:, heads], tokens)
        return call.with_output(_replaced(call.returned, heads, new))

    def _tokens_of_kernel(
        self, site: CallSite, call: KernelCall
    ) -> Bool[Tensor, "batch_or_1 queries"]:
        """Return which queries are no padding.

        Raises:
            ValueError: that is unknown, or not all positions are in the call.
        """
        parsed = parse_call(call, self.capture.masks, cross=site.cross is True)
        inputs = parsed.call
        sizes = (inputs.num_queries, inputs.num_keys)
        said = parsed.first_query
        first = positions_of(site.frame, site.cross is True, *sizes, said).first_query
        self._check_whole(site, first, *sizes)
        real = torch.ones(1, inputs.num_queries, dtype=torch.bool)
        if site.cross:
            return real
        if not parsed.mask_known:
            self.refuse(site, _UNKNOWN_MASK)
        for leaf in inputs.pattern.leaves():
            if isinstance(leaf, Padding):
                keys = torch.arange(inputs.num_keys)
                batch = torch.arange(leaf.batch_size)[:, None]
                real = real & leaf.test(batch, keys, keys)
            elif isinstance(leaf, FromMask):
                real = real & self._attended(site, leaf.mask.cpu())
            elif isinstance(leaf, Documents) and bool(
                (leaf.ids.unique(return_counts=True)[1] == 1).any()
            ):
                # Documents of one token may be padding that attends to itself.
                self.refuse(site, _UNKNOWN_PADDING)
            elif leaf.batch_size is not None:
                self.refuse(site, _UNKNOWN_PADDING)
        self._check_padding(site, real, call.key)
        return real

    def _tokens_by_mask(
        self, site: CallSite, call: WrittenCall
    ) -> Bool[Tensor, "batch_or_1 queries"]:
        """Return which queries are no padding: those to which some query may attend."""
        product, axes = call.product, call.axes
        queries, keys = axes.weights.shape[2:]
        said = 0 if queries == keys else None
        first = positions_of(site.frame, site.cross is True, queries, keys, said).first_query
        self._check_whole(site, first, queries, keys)
        every = torch.ones(1, queries, dtype=torch.bool)
        if site.cross:
            return every
        if product.mask is None:
            self.refuse(site, _UNKNOWN_MASK)
        real = every
        if axes.masked is not None:
            real = self._attended(site, ~axes.masked.all(dim=1))
        if product.mask.zeroed:
            # What is attended to is no padding; what isn't may be, or may not have been selected.
            weights = axes.weights
            if axes.masked is not None:
                weights = weights.masked_fill(axes.masked, 0.0)
            attended = (weights != 0.0).any(dim=2).any(dim=1)
            if bool((real & ~attended).any()):
                self.refuse(site, _UNKNOWN_MASK)
        self._check_padding(site, real, key_of(product.operands, keys))
        return real

    def _attended(
        self, site: CallSite, allowed: Bool[Tensor, "batch_or_1 queries keys"]
    ) -> Bool[Tensor, "batch_or_1 queries"]:
        """Return which tokens some query may attend to: all but padding.

        Refuse masks in which that doesn't tell padding: those that keep tokens from themselves, of
        which the last has no query either, and those that leave padding to itself, against NaN.
        """
        attended = allowed.any(dim=1)
        itself = allowed.diagonal(dim1=1, dim2=2)
        unlike_itself = bool((attended & ~itself).any())
        alone = itself & (allowed.sum(dim=1) == 1)
        # The last token of a causal sequence has no later query.
        alone[:, -1] &= allowed.triu(diagonal=1).any(dim=2).any(dim=1)
        if allowed.shape[1] > 1 and ((unlike_itself and not bool(attended.all())) or alone.any()):
            self.refuse(site, _UNKNOWN_PADDING)
        return attended

    def _check_padding(self, site: CallSite, real: Tensor, key: Tensor | None) -> None:
        """Refuse padding of keys that may not be that of queries."""
        if bool(real.all()):
            return
        if key is not None and any(is_memory(site.module, key, place) for place in (0, -1)):
            self.refuse(site, 'by="mean" leaves padding out, and some keys are parameters')
        inputs = [x for x in site.frame.given if x.is_floating_point() and x.dim() > 2]
        others = (x for x in inputs[1:] if x.shape[-1] == inputs[0].shape[-1])
        if any(x.shape != inputs[0].shape or not torch.equal(x, inputs[0]) for x in others):
            self.refuse(site, 'by="mean" leaves padding out, and its keys may be other tokens')

    def _check_whole(self, site: CallSite, first: int | None, queries: int, keys: int) -> None:
        if first != 0 or (not site.cross and queries != keys):
            self.refuse(
                site, f'by="mean" is of all positions, and this call has {queries} of {keys}'
            )


def _replaced(current: Heads, heads: list[int], new: Tensor | None) -> Heads:
    """Return outputs with others for some heads: new ones, the same for all queries, or zeros."""
    index = torch.tensor(heads, device=current.device)
    if new is None:
        chosen = torch.zeros(current.shape[1], dtype=torch.bool, device=current.device)
        chosen[index] = True
        return current.masked_fill(chosen[:, None, None], 0.0)
    return current.index_copy(1, index, new.to(current).expand(-1, -1, current.shape[2], -1))


def _mean(
    output: Heads, real: Bool[Tensor, "batch_or_1 queries"]
) -> Float[Tensor, "batch heads 1 value_dim"]:
    """Return the mean over positions."""
    counted = real.to(output.device)[:, None, :, None]
    numbers = output.to(torch.promote_types(output.dtype, torch.float32))
    total = numbers.masked_fill(~counted, 0.0).sum(dim=2, keepdim=True)
    return total / counted.sum(dim=2, keepdim=True).clamp(min=1)
