"""What happens while a model is watched: calls are caught, understood, checked and kept."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.arguments import autocasted
from regard.hf.use import CROSS
from regard.patterns import everyone
from regard.patterns.narrowed import narrowed
from regard.patterns.padding import Padding
from regard.patterns.pattern import Everyone
from regard.positions import Bias, given
from regard.positions.joined import joined
from regard.watch import interface
from regard.watch.call import Call
from regard.watch.caught import Caught
from regard.watch.check import NOT_ASKED_FOR, Check, checked, checked_weights
from regard.watch.held import Held, HeldWeights, Keeping, Room, keep, keep_bias
from regard.watch.internals import is_backward, modes, unseen
from regard.watch.masks import Masks, Sizes
from regard.watch.mode import Mode
from regard.watch.options import Options
from regard.watch.places import Frame, Places
from regard.watch.product import Product
from regard.watch.reading import InParts, read_axes

_NO_SIZES = Sizes(0, 0, 0, 0)


@dataclass
class _Noted:
    """Who made a call."""

    module: str
    kernel: str
    cross: bool | None


class Watcher:
    """Watches a model in the thread in which it is made; see `Catcher`.

    Args:
        model: the model.
        calls: the list that its calls are added to.
        options: what to do with them.
    """

    def __init__(self, model: nn.Module, calls: list[Call], options: Options) -> None:
        self.cross: bool | None = None
        self._calls, self._options = calls, options
        self._places, self._masks = Places(model, self._ended), Masks()
        self._latest: dict[str, Held] = {}
        self._biases: dict[nn.Module, tuple[list[int], Bias | None]] = {}
        self._quiet = self._num_runs = 0
        self._mode = Mode(self)
        self._compiled = any(_is_compiled(module) for module in model.modules())
        self._entered = ExitStack()

    def __enter__(self) -> "Watcher":
        with ExitStack() as entering:
            if self._compiled:
                # Compiled code has no functions left that could be seen.
                entering.enter_context(torch.compiler.set_stance("force_eager"))
            entering.enter_context(self._places)
            entering.enter_context(interface.told(self))
            if "torch.nn.attention.flex_attention" in sys.modules:
                from regard.watch import flex

                entering.enter_context(flex.told(self))
            entering.enter_context(self._mode)
            self._entered = entering.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()
        self._mode.forget()
        self._masks = Masks()
        self._latest.clear()
        self._biases.clear()

    @property
    def looks(self) -> bool:
        # In the backward pass, a model that saves memory computes its calls a second time.
        return not self._quiet and self._places.current is not None and not is_backward()

    @property
    def running(self) -> Sequence[Frame]:
        return self._places.running

    @contextmanager
    def quiet(self) -> Generator[None]:
        self._quiet += 1
        # Without the mode, nothing is slower, and what was compiled without it fits.
        on_top = modes()[-1:] == [self._mode]
        if on_top:
            self._mode.__exit__(None, None, None)
        try:
            yield
        finally:
            if on_top:
                self._mode.__enter__()
            self._quiet -= 1

    def catch(self, kernel: str, module: nn.Module | None, read: Callable[[], Caught]) -> None:
        noted = self._noted(kernel, module)
        if noted is None:
            return
        # What is computed here is nothing that anybody watches.
        with torch.no_grad(), unseen():
            caught: Caught | None = None
            if self._num_runs != self._places.num_runs:
                self._num_runs = self._places.num_runs
                self._masks.forget()
            try:
                caught = _as_computed(read())
                call = self._understood(noted, caught)
            except Exception as error:  # noqa: BLE001
                # Whatever it is: a model must not fail because somebody looks at it.
                if caught is not None and caught.weights is not None:
                    call = self._own(noted, caught.weights, caught.value, caught.output)
                else:
                    reason = str(error).split("\n")[0] or type(error).__name__
                    call = self._call(noted, problem=reason)
            self._add(call)

    def catch_product(self, product: Product, num_heads: int | None) -> None:
        noted = self._noted("softmax", None)
        if noted is None:
            return
        frame = self.running[-1]
        with torch.no_grad(), unseen():
            try:
                read = read_axes(product, self.running, num_heads)
                if frame.problem:
                    return
                call = self._own(noted, read.weights, read.value, read.output, product.dropped)
                call.heads_known = read.heads_known
                frame.calls.append(call)
                self._add(call)
            except InParts as error:
                self._spoil(frame, str(error))
            except Exception as error:  # noqa: BLE001
                self._spoil(frame, str(error).split("\n")[0] or type(error).__name__)

    def catch_lost(self, frame: Frame, reason: str) -> None:
        self._spoil(frame, reason)

    def _spoil(self, frame: Frame, reason: str) -> None:
        """Say that what a module has computed can't be looked into, not even parts of it."""
        name = self._places.name(frame.module)
        if frame.problem or name is None or not self._options.wanted(name, frame.module):
            return
        frame.problem = reason
        for call in frame.calls:
            call.let_go(reason)
        if not frame.calls:
            self._calls.append(self._call(_Noted(name, "softmax", None), problem=reason))

    def _ended(self, frame: Frame) -> None:
        """Tell of what was not followed in a module that has ended."""
        if not self._quiet:
            self._mode.end(all_of_them=not self.running)

    def _add(self, call: Call) -> None:
        """Add a call to the others, and compute what is wanted of it."""
        if self._options.reductions is not None and not call.problem:
            call.summarize(self._options.reductions)
        self._calls.append(call)

    def _noted(self, kernel: str, module: nn.Module | None) -> _Noted | None:
        """Return who made a call, or None if it isn't wanted."""
        module = self._places.current if module is None else module
        name = None if module is None or not self.looks else self._places.name(module)
        if module is None or name is None or not self._options.wanted(name, module):
            return None
        cross = self.cross
        if cross is None and (
            any(part in name.lower() for part in CROSS)
            or getattr(module, "is_cross_attention", False) is True
        ):
            cross = True
        return _Noted(name, kernel, cross)

    def _understood(self, noted: _Noted, caught: Caught) -> Call:
        held = self._held(noted, caught)
        check = checked(caught, held, len(self._calls)) if self._options.check else NOT_ASKED_FOR
        if caught.weights is not None and check.passed is False and not check.is_nan:
            return self._own(noted, caught.weights, caught.value, caught.output)
        if noted.cross is None:
            noted.cross = _is_cross(held)
        return self._call(
            noted,
            sizes=_sizes(caught),
            key_heads=caught.key.shape[1],
            dtype=caught.query.dtype,
            check=check,
            pattern=held.pattern,
            held=self._kept(noted, held) if self._options.reductions is None else held,
        )

    def _held(self, noted: _Noted, caught: Caught) -> Held:
        """Say what a call means."""
        query, key = caught.query.detach(), caught.key.detach()
        sizes = _sizes(caught)
        meaning = self._masks.read(caught.mask, sizes, cross=noted.cross is True)
        positions = meaning.first_query if caught.first_query is None else caught.first_query
        if isinstance(positions, Tensor):
            consecutive = bool((positions.diff() == 1).all())
            positions = int(positions[0]) if consecutive else positions.clone()
        added: Bias | None = None
        if caught.added is not None:
            if isinstance(positions, Tensor):
                raise ValueError("numbers are added to scores of queries that stand here and there")
            numbers = caught.added.detach().expand(-1, -1, sizes.queries, -1)[..., : sizes.keys]
            added = given(numbers, first_query=positions)
        known = None if isinstance(meaning.pattern, Everyone) else meaning.pattern
        pattern = narrowed(known, caught.pattern)
        return Held(
            query,
            Room(key),
            sizes.keys,
            everyone() if pattern is None else pattern,
            joined(joined(caught.bias, added), meaning.bias),
            caught.scale,
            None if caught.sinks is None else caught.sinks.detach(),
            positions,
            caught.value.detach() if self._options.values else None,
        )

    def _kept(self, noted: _Noted, held: Held) -> Held:
        """Return what is kept of a call, in memory that may be kept."""
        # A cache is written to again and again.
        key = self._keep_tensor(held.key, copy=held.num_keys != held.query.shape[2])
        sinks = None if held.sinks is None else self._keep_tensor(held.sinks, copy=True)
        for leaf in held.pattern.leaves():
            if isinstance(leaf, Keeping):
                leaf.keep(self._keep_tensor)
        before = self._latest.get(noted.module)
        grown = before is not None and before.room.grow(key, before.used)
        kept = replace(
            held,
            query=self._keep_tensor(held.query),
            room=before.room if before is not None and grown else Room(key),
            bias=self._kept_bias(held.bias),
            sinks=sinks,
            value=None
            if held.value is None
            else self._keep_tensor(held.value, copy=held.num_keys != held.query.shape[2]),
        )
        self._latest[noted.module] = kept
        return kept

    def _keep_tensor(self, tensor: Tensor, *, copy: bool = False) -> Tensor:
        always = copy or self._options.copy
        return keep(tensor, always_copy=always, offload=self._options.offload)

    def _kept_bias(self, bias: Bias | None) -> Bias | None:
        """Return a bias to keep, the same for all calls for as long as it stays the same."""
        if not isinstance(bias, nn.Module):
            return keep_bias(bias, self._keep_tensor)
        versions = [tensor._version for tensor in bias.tensors]
        latest = self._biases.get(bias)
        if latest is None or latest[0] != versions:
            latest = (versions, keep_bias(bias, self._keep_tensor))
            self._biases[bias] = latest
        return latest[1]

    def _own(
        self, noted: _Noted, weights: Tensor, value: Tensor, output: Tensor, dropped: bool = False
    ) -> Call:
        """Return a call of which weights are known, because somebody wrote them down."""
        weights = weights.detach()
        check = NOT_ASKED_FOR
        if self._options.check:
            check = checked_weights(weights, value, output, len(self._calls), dropped=dropped)
        if self._options.reductions is None:
            weights = self._keep_tensor(weights)
        return self._call(
            noted,
            sizes=Sizes(*weights.shape),
            key_heads=weights.shape[1],
            dtype=weights.dtype,
            check=check,
            held=HeldWeights(weights),
        )

    def _call(
        self,
        noted: _Noted,
        *,
        sizes: Sizes = _NO_SIZES,
        key_heads: int = 0,
        dtype: torch.dtype = torch.float32,
        check: Check = NOT_ASKED_FOR,
        **more: Any,
    ) -> Call:
        return Call(
            index=len(self._calls),
            module=noted.module,
            looks="cross" if noted.cross else "self",
            kernel=noted.kernel,
            batch=sizes.batch,
            heads=sizes.heads,
            key_heads=key_heads,
            queries=sizes.queries,
            keys=sizes.keys,
            dtype=dtype,
            check=check,
            **more,
        )


def _as_computed(caught: Caught) -> Caught:
    """Return a call with its tensors in the type that autocast gives them."""
    query, key, value = autocasted(caught.query, caught.key, caught.value)
    return replace(caught, query=query, key=key, value=value)


def _sizes(caught: Caught) -> Sizes:
    batch, heads, queries, _ = caught.query.shape
    return Sizes(batch, heads, queries, caught.key.shape[2])


def _is_cross(held: Held) -> bool:
    """Guess whether a call looked at another sequence: at one of another length, in no order."""
    num_queries = held.query.shape[2]
    if num_queries in (1, held.num_keys):
        return False
    return all(isinstance(leaf, Everyone | Padding) for leaf in held.pattern.leaves())


def _is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
