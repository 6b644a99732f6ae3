"""Capture, interpret, check and keep the calls of a model."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.call import Attention
from regard.calls.call import AttentionCall, layer_index
from regard.calls.check import NOT_COMPARED, Check, StepChecks, check_scores, check_weights
from regard.calls.options import Options
from regard.calls.outputs import OutputGradient, OutputProjection
from regard.capture.call import KernelCall
from regard.capture.captured import (
    OVERWRITTEN,
    FirstKeys,
    Keeping,
    SharedKeys,
    keep,
    keep_bias,
    num_used_keys,
)
from regard.capture.gradients import follow, require_grad
from regard.capture.listener import CallSite, Listener, Rank
from regard.capture.masks import ParsedMask, Sizes
from regard.capture.module_stack import Frame
from regard.capture.parse import counted_from, parse_call
from regard.capture.product import MULTIPLIED_AGAIN, Product
from regard.capture.projections import Projections
from regard.capture.reading import InParts, Reading, are_heads_known
from regard.distributed.head_shards import head_shard
from regard.errors import first_line
from regard.internals import TRANSFORMED, in_functorch, is_backward, without_torch_function
from regard.matrix.scores import Scores
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns.padding import Padding
from regard.patterns.pattern import Everyone
from regard.positions import Bias


@dataclass(eq=False)
class _Written:
    """The attention that a running module computes itself.

    Attributes:
        calls: the numbers of its calls.
        problem: why these are not all of its attention, if so.
    """

    calls: list[int] = field(default_factory=list[int])
    problem: str = ""


class Watcher(Listener):
    """Watches a model in the current thread.

    Args:
        model: the model.
        calls: the list to which calls are added.
        options: its options.
    """

    rank = Rank.WATCH

    def __init__(self, model: nn.Module, calls: list[AttentionCall], options: Options) -> None:
        super().__init__(model)
        self._calls, self._options = calls, options
        self._latest: dict[str, Attention] = {}
        self._biases: dict[nn.Module, tuple[list[int], Bias]] = {}
        self._step_checks = StepChecks()
        self._written: WeakKeyDictionary[Frame, _Written] = WeakKeyDictionary()
        self._softmaxes: dict[int, frozenset[object]] = {}
        self._projections: Projections | None = None
        if options.values and options.reductions is None:
            self._projections = Projections(model, self._add_projection)
            self.observe = self._projections.see

    def __enter__(self) -> Self:
        super().__enter__()
        if self._projections is not None:
            self._projections.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._projections is not None:
            self._projections.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)
        self.on_run_end()
        self._latest.clear()
        self._biases.clear()
        self._softmaxes.clear()

    @property
    def wants_lse(self) -> bool:
        return self._options.effects and not is_backward() and not in_functorch()

    @property
    def is_active(self) -> bool:
        # A checkpointed model recomputes its calls in the backward pass; then their outputs need
        # gradients again.
        return self._options.effects or not is_backward()

    def selects(self, name: str, module: nn.Module) -> bool:
        return self._options.wanted(name, module)

    def on_call(
        self, kernel: str, module: nn.Module | None, read: Callable[[], KernelCall]
    ) -> None:
        site = self.site(module)
        if site is None:
            return
        if in_functorch():
            self._add(site, self._call(site, kernel, problem=TRANSFORMED))
            return
        if is_backward():
            # A call that can't be read did not get gradients the first time either.
            with suppress(Exception):
                self._require_grad(read())
            return
        needs_grad = torch.is_grad_enabled()
        # Our own computations must not be watched.
        with torch.no_grad(), without_torch_function():
            caught: KernelCall | None = None
            try:
                caught = read()
                if needs_grad:
                    self._require_grad(caught)
                call = self._call_from_kernel(site, caught)
            except Exception as error:  # noqa: BLE001
                # A watched model must not fail because of us.
                if caught is not None and caught.weights is not None:
                    call = self._call_from_weights(site, kernel, caught)
                else:
                    call = self._call(site, kernel, problem=first_line(error))

            if self._options.effects and caught is not None and not call.problem:
                call = self._with_gradient(
                    call,
                    caught.value,
                    caught.output,
                    caught.original,
                    view=caught.output,
                    dropped=caught.dropout > 0,
                    problem_of_scores="" if isinstance(call.source, Scores) else _NOT_REPRODUCED,
                )
            # The interface and nn.MultiheadAttention say which axes they pass.
            axes_known = module is not None or self.capture.cross is not None
            if caught is not None and not axes_known and not call.problem:
                known = are_heads_known(caught.query, caught.value, self.running)
                call = replace(call, heads_known=known)
            self._add(site, call)
            if self._projections is not None and caught is not None and not call.problem:
                self._projections.expect(call.index, site.module, caught.returned.detach())

    def on_product(self, product: Product, read: Callable[[Sequence[Frame]], Reading]) -> None:
        site = self.site(None)
        if site is None:
            return
        if in_functorch():
            self._mark_failed(site.frame, TRANSFORMED)
            return
        if product.again:
            self._refuse_effects(site, product)
            return
        assert product.result is not None
        assert product.original is not None
        if self._options.effects and torch.is_grad_enabled():
            with without_torch_function():
                require_grad(product.result)
        if is_backward():
            return

        written = self._written_in(site.frame)
        with torch.no_grad(), without_torch_function():
            try:
                axes = read(self.running)
                if written.problem:
                    return
                call = self._call_from_weights(site, "softmax", axes, product)
                if self._options.effects:
                    problem = _CHANGED if product.changed else ""
                    call = self._with_gradient(
                        call,
                        axes.value,
                        axes.output,
                        product.original,
                        view=axes.view,
                        dropped=product.dropped,
                        problem_of_scores=problem,
                    )
                written.calls.append(call.index)
                self._softmaxes[call.index] = product.softmaxes
                self._add(site, replace(call, heads_known=axes.heads_known))
            except InParts as error:
                self._mark_failed(site.frame, str(error))
            except Exception as error:  # noqa: BLE001
                self._mark_failed(site.frame, first_line(error))

    def _refuse_effects(self, site: CallSite, product: Product) -> None:
        """Refuse the effects of calls whose weights are multiplied with other values too."""
        for index in self._written_in(site.frame).calls:
            gradient = self._calls[index].gradient
            if gradient is not None and self._softmaxes[index] & product.softmaxes:
                gradient.problem = gradient.problem or MULTIPLIED_AGAIN

    def on_untracked(self, frame: Frame, reason: str) -> None:
        # In the backward pass, recomputation stops where nothing more of it is needed.
        if not is_backward():
            self._mark_failed(frame, reason)

    def on_run_end(self) -> None:
        # A watched model must not fail because of us. A check that was not made is made, or raises,
        # when it is read.
        with suppress(Exception):
            self._step_checks.run()

    def _written_in(self, frame: Frame) -> _Written:
        return self._written.setdefault(frame, _Written())

    def _mark_failed(self, frame: Frame, reason: str) -> None:
        """Mark all written-down calls of a module as not captured."""
        written, name = self._written_in(frame), self.names.get(frame.module)
        if written.problem or name is None or not self.selects(name, frame.module):
            return
        written.problem = reason
        for index in written.calls:
            self._calls[index] = self._calls[index].failed(reason)
        if not written.calls:
            site = CallSite(name, frame.module, frame, None)
            self._calls.append(self._call(site, "softmax", problem=reason))

    def _add_projection(self, index: int, projection: OutputProjection | None) -> None:
        self._calls[index] = replace(self._calls[index], projection=projection)

    def _add(self, site: CallSite, call: AttentionCall) -> None:
        """Add a call, and compute its reductions."""
        if not call.problem:
            try:
                source = call.source
                dim = source.call.query.shape[-1] if isinstance(source, Scores) else None
                shard = head_shard(site.module, call.heads, dim)
                if shard.total != call.heads:
                    call = call.sharded(*shard)
            except ValueError as error:
                call = call.failed(str(error))
        if self._options.reductions is not None and not call.problem:
            try:
                call = call.summarized(self._options.reductions)
            except ValueError as error:
                # Such as a count of allowed pairs where the mask is unknown.
                call = call.failed(first_line(error))
        self._calls.append(call)

    def _call_from_kernel(self, site: CallSite, caught: KernelCall) -> AttentionCall:
        """Return a call with queries and keys."""
        parsed = parse_call(caught, self.capture.masks, cross=site.cross is True)
        call, mask_known = parsed.call, parsed.mask_known
        lse = caught.kernel_lse if caught.lse is None else caught.lse
        has_value = self._options.values or self._options.effects
        if has_value or lse is not None:
            call = replace(
                call,
                value=caught.value if has_value else None,
                lse=lse if caught.sinks is None else None,
            )

        # If the weights that a kernel returned are others, they are the matrix.
        check = self._check(call, mask_known, caught) if self._options.check else NOT_COMPARED
        if caught.weights is not None and check.passed is False and not check.is_nan:
            return self._call_from_weights(site, caught.kernel, caught)

        if site.cross is None:
            site = site._replace(cross=_is_cross(call))
        source = (
            self._kept(site.name, call, mask_known)
            if self._options.reductions is None
            else _detached_scores(call, mask_known)
        )
        return self._call(
            site,
            caught.kernel,
            source.shape,
            key_heads=caught.key.shape[1],
            dtype=caught.query.dtype,
            check=check,
            pattern=source.call.pattern,
            view=View.whole(source),
        )

    def _check(self, call: Attention, mask_known: bool, caught: KernelCall) -> Check:
        """Compare a call with its kernel's output, or have it compared when the step ends."""
        value, output, dropout = caught.value, caught.output, caught.dropout > 0
        if caught.weights is None and not dropout:
            later = self._step_checks.add(call, value, output)
            if later is not None:
                return later
        source = _detached_scores(call, mask_known)
        return check_scores(source, value, output, len(self._calls), dropout=dropout)

    def _kept(self, module: str, call: Attention, mask_known: bool) -> Scores:
        """Return the scores of a call with tensors that can be kept."""
        for leaf in call.pattern.leaves():
            if leaf.tensors and isinstance(leaf, Keeping):
                leaf.keep(self._keep_tensor)
        call = call.kept(self._keep_tensor, self._kept_bias, in_cache=True)
        assert isinstance(call.key, Tensor)
        former = self._latest.get(module)
        shared: SharedKeys | None = None
        if former is not None:
            assert isinstance(former.key, FirstKeys)
            if former.key.shared.grow(call.key, num_used_keys(former)):
                shared = former.key.shared
        if shared is None:
            shared = SharedKeys(call.key)
        call = replace(call, key=FirstKeys(shared, call.num_keys))
        self._latest[module] = call
        return Scores(call, OVERWRITTEN, mask_known)

    def _keep_tensor(self, tensor: Tensor, *, copy: bool = False) -> Tensor:
        always = copy or self._options.copy
        return keep(tensor, always_copy=always, offload=self._options.offload)

    def _kept_bias(self, bias: Bias) -> Bias:
        """Return a bias to keep, shared by calls while it is unchanged."""
        # Inference tensors have no version counter.
        if not isinstance(bias, nn.Module) or any(tensor.is_inference() for tensor in bias.tensors):
            return keep_bias(bias, self._keep_tensor)
        versions = [tensor._version for tensor in bias.tensors]
        latest = self._biases.get(bias)
        if latest is None or latest[0] != versions:
            latest = (versions, keep_bias(bias, self._keep_tensor))
            self._biases[bias] = latest
        return latest[1]

    def _call_from_weights(
        self,
        site: CallSite,
        kernel: str,
        read: Reading | KernelCall,
        product: Product | None = None,
    ) -> AttentionCall:
        """Return a call with explicit weights.

        Args:
            site: the module of the call.
            kernel: the name of the kernel.
            read: weights, values and output: of a product, or as a kernel returned them.
            product: the product.
        """
        assert read.weights is not None
        weights, index = read.weights.detach(), len(self._calls)
        check = NOT_COMPARED
        if self._options.check:
            dropped = product is not None and product.dropped
            check = check_weights(weights, read.value, read.output, index, dropout=dropped)

        # Its pattern, and the positions of its queries.
        _, heads, queries, keys = weights.shape
        placed: ParsedMask | None = None
        if isinstance(read, Reading) and product is not None and product.mask is not None:
            masked, zeroed = read.masked, product.mask.zeroed
            placed = self._placed(weights, masked, zeroed=zeroed, cross=site.cross is True)
        first = keys - queries if placed is None else placed.first_query
        value: Tensor | None = None
        if self._options.reductions is None:
            weights = self._keep_tensor(weights)
            value = self._keep_tensor(read.value) if self._options.values else None
        source = Weights(
            weights,
            Everyone() if placed is None else placed.pattern,
            torch.arange(first, first + queries, device="cpu"),
            OVERWRITTEN,
            mask_known=placed is not None,
            value=value,
        )
        return self._call(
            site,
            kernel,
            source.shape,
            key_heads=heads,
            dtype=weights.dtype,
            check=check,
            pattern=None if placed is None else placed.pattern,
            view=View.whole(source),
        )

    def _placed(
        self,
        weights: Float[Tensor, "batch heads queries keys"],
        masked: Bool[Tensor, "batch heads queries keys"] | None,
        *,
        zeroed: bool,
        cross: bool,
    ) -> ParsedMask | None:
        """Return masked pairs as a pattern; None if that isn't known.

        Args:
            weights: the weights.
            masked: the pairs that were masked before the softmax.
            zeroed: whether others may have been masked after it.
            cross: whether it is cross-attention.
        """
        sizes = Sizes(*weights.shape)
        if zeroed and bool(((weights == 0.0) & _not(masked)).any()):
            return None
        # nn.MultiheadAttention may add keys behind those that it was given.
        by_row = self.capture.cross is False
        if masked is None:
            return ParsedMask(Everyone(), 0 if by_row else sizes.behind)
        # Rows in which all pairs are masked have any weights.
        wrong = masked & (weights != 0.0) & ~masked.all(dim=-1, keepdim=True)
        if bool(wrong.any()):
            return None
        parsed = self.capture.masks.read(~masked, sizes, cross=cross)
        if by_row:
            parsed = counted_from(parsed, 0)
        return None if parsed.bias is not None else parsed

    def _require_grad(self, call: KernelCall) -> None:
        """Make the output of a call require gradients, if effects are wanted."""
        if self._options.effects:
            with without_torch_function():
                require_grad(call.original if call.replaced is None else call.replaced)

    def _with_gradient(
        self,
        call: AttentionCall,
        value: Float[Tensor, "batch key_heads keys value_dim"],
        output: Float[Tensor, "batch heads queries value_dim"],
        original: Tensor,
        *,
        view: Float[Tensor, "batch heads queries value_dim"] | None,
        dropped: bool,
        problem_of_scores: str,
    ) -> AttentionCall:
        """Return a call that collects the gradients of its output.

        Args:
            call: the call.
            value: its values.
            output: its output.
            original: the kernel's result.
            view: the kernel's result, laid out as the output; None if it is a multiple.
            dropped: whether there was dropout.
            problem_of_scores: why gradients of scores don't follow from it, if so.
        """
        source = call.source
        kept = source.call.value if isinstance(source, Scores) else None
        value = self._keep_tensor(value) if kept is None else kept
        gradient = OutputGradient(value, self._keep_tensor(output), overwritten=OVERWRITTEN)
        gradient.problem_of_scores = problem_of_scores
        if dropped:
            gradient.problem = "dropout changed its output, call model.eval() first"
        elif not original.requires_grad:
            gradient.problem = (
                "it needed no gradient when it ran (under no_grad, in reentrant checkpoints, or "
                "ablated with all parameters frozen)"
            )
        elif view is None:
            gradient.problem = "the function that computed its output has scaled it (alpha)"
        else:
            follow(gradient, view, original, self._options.offload)
        return replace(call, gradient=gradient)

    def _call(
        self,
        site: CallSite,
        kernel: str,
        sizes: tuple[int, int, int, int] = (0, 0, 0, 0),
        **details: Any,
    ) -> AttentionCall:
        batch, heads, queries, keys = sizes
        return AttentionCall(
            index=len(self._calls),
            module=site.name,
            kind="cross" if site.cross else "self",
            layer=layer_index(site.name),
            kernel=kernel,
            batch=batch,
            heads=heads,
            queries=queries,
            keys=keys,
            **details,
        )


_CHANGED = "its weights are not the result of one softmax, unchanged"
_NOT_REPRODUCED = "the weights that its kernel returned are not a softmax of its queries and keys"


def _detached(tensor: Tensor, *, copy: bool = False) -> Tensor:
    """Detach a tensor that is used at once."""
    return tensor.detach().clone() if copy else tensor.detach()


def _not(masked: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."]:
    """Return the pairs that are not masked."""
    return torch.ones((), dtype=torch.bool) if masked is None else ~masked


def _detached_scores(call: Attention, mask_known: bool) -> Scores:
    """Return the scores of a call that are used at once."""
    return Scores(call.kept(_detached, lambda bias: bias), mask_known=mask_known)


def _is_cross(call: Attention) -> bool:
    """Guess cross-attention: another number of keys, and no mask except padding."""
    if call.num_queries in (1, call.num_keys):
        return False
    return all(isinstance(leaf, Everyone | Padding) for leaf in call.pattern.leaves())
