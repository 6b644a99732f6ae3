"""The base class of everything that changes the attention of a running model."""

import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

from torch import Tensor, nn

from regard.capture.call import Call, KernelCall, UnreadableError, WrittenCall
from regard.capture.listener import CallSite, Listener
from regard.capture.module_stack import Frame
from regard.capture.product import MULTIPLIED_AGAIN, Product
from regard.capture.reading import Reading, are_heads_known, num_heads_of
from regard.distributed.head_shards import head_shard
from regard.internals import (
    TRANSFORMED,
    in_functorch,
    in_reentrant_checkpoint,
    is_backward,
    without_torch_function,
)
from regard.interventions.layers import Layer, Layers


class Intervention(Listener):
    """Changes the calls of some layers, in the thread in which its context is entered.

    A subclass has a rank and `changed`, which returns a call with another output:

        class Doubled(Intervention):
            rank = Rank.ABLATE

            def changed(self, site, call):
                return call.with_output(2.0 * call.returned)

    Calls that it can't change exactly raise. In backward passes it is active too, because a
    checkpointed model computes its calls a second time there.

    Args:
        model: the model.
        layers: its layers.
    """

    needs_heads = True
    """Whether heads and sequences must be told apart."""

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        super().__init__(model)
        self._layers = layers
        self._problem: ValueError | None = None
        self._recomputations: Counter[str] = Counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if kind is None:
            self._check_end()

    def _check_end(self) -> None:
        """Raise if the block has ended without an error, and something was not changed."""
        if self._problem is not None:
            raise self._problem
        self._layers.check()
        for name in +self._recomputations:
            raise RuntimeError(
                f"{name or 'the model'} is checkpointed, so a backward pass would compute it "
                "again, but unaltered: call backward() inside the block and in its thread, as "
                "on CPUs, or turn checkpointing off"
            )

    def selects(self, name: str, module: nn.Module) -> bool:
        return self._layers.has(name)

    @abstractmethod
    def changed(self, site: CallSite, call: Call) -> Call | None:
        """Return the changed call, or None to leave it as it is."""

    def on_call(
        self, kernel: str, module: nn.Module | None, read: Callable[[], KernelCall]
    ) -> KernelCall | None:
        site = self.site(module)
        if site is None:
            return None
        with without_torch_function(), self.explained(site):
            try:
                call = read()
            except ValueError as error:
                self.refuse(site, str(error))
            self._record_call(site)

            # The interface and nn.MultiheadAttention say which axes they pass.
            axes_known = module is not None or self.capture.cross is not None
            if self.needs_heads and not (
                axes_known or are_heads_known(call.query, call.value, self.running)
            ):
                number = num_heads_of(site.module)
                heads = "heads" if number is None else f"{number} heads"
                raise UnreadableError(f"its {heads} can't be told from its batch")

            self._check_all_heads(call.query.shape[1], call.query.shape[-1], site)
            changed = self.changed(site, call)
        assert not isinstance(changed, WrittenCall)
        return changed

    def on_product(
        self, product: Product, read: Callable[[Sequence[Frame]], Reading]
    ) -> Tensor | None:
        site = self.site(None)
        if site is None:
            return None
        if product.again:
            self.multiplied_again(site)
            return None
        with without_torch_function(), self.explained(site):
            running = self.running
            try:
                axes = read(running)
            except ValueError as error:
                self.refuse(site, str(error))
            self._record_call(site)
            if self.needs_heads and not axes.heads_known:
                raise UnreadableError("its heads can't be told from its batch")

            self._check_all_heads(axes.weights.shape[1], None, site)
            call = WrittenCall(product, axes, running, self.capture.num_heads)
            changed = self.changed(site, call)
        return changed.product.result if isinstance(changed, WrittenCall) else None

    def on_untracked(self, frame: Frame, reason: str) -> None:
        site = self.site(frame.module)
        if site is None:
            return
        # If the model has failed already, that error is raised.
        failed = sys.exc_info()[0] is not None
        try:
            self.refuse(site, reason)
        except ValueError as error:
            self._problem = error
            if not failed:
                raise

    def _record_call(self, site: CallSite) -> None:
        """Record a call, and whether checkpointing will recompute it."""
        self._layers.record_call(site.name)
        if is_backward():
            self._recomputations[site.name] -= 1
        elif self.running and self.running[0].grad and in_reentrant_checkpoint():
            self._recomputations[site.name] += 1

    @contextmanager
    def explained(self, site: CallSite) -> Generator[None]:
        """Refuse a call that can't be read, or not under transforms of `torch.func`."""
        try:
            yield
        except UnreadableError as error:
            self.refuse(site, str(error))
        except (RuntimeError, NotImplementedError):
            if in_functorch():
                self.refuse(site, TRANSFORMED)
            raise

    def multiplied_again(self, site: CallSite) -> None:
        """Accept that weights are multiplied with other values too; refuse by default."""
        self.refuse(site, MULTIPLIED_AGAIN)

    def _check_all_heads(self, heads: int, head_dim: int | None, site: CallSite) -> None:
        """Raise ValueError if other processes have heads of a layer, or may have."""
        try:
            shard = head_shard(site.module, heads, head_dim)
        except ValueError as error:
            self.refuse(site, str(error))
        if shard.total != heads:
            self.refuse(
                site, f"{shard.total - heads} of its {shard.total} heads are in other processes"
            )

    def refuse(self, site: CallSite, reason: str) -> NoReturn:
        """Raise ValueError: a call can't be altered."""
        raise ValueError(f"the attention of {site.name or 'the model'} can't be altered: {reason}")


def check_heads(name: str, heads: list[int], num_heads: int) -> None:
    """Raise ValueError unless a layer has these heads."""
    if heads and max(heads) >= num_heads:
        last = max(heads)
        raise ValueError(f"heads: {name} has {num_heads} heads, counted from 0, got head {last}")


def checked_pairs(heads: Iterable[tuple[Layer, int]], argument: str) -> list[tuple[Layer, int]]:
    """Return pairs (layer, head) of an argument, or raise TypeError or ValueError."""
    chosen = list(heads)
    for pair in chosen:
        is_pair = isinstance(pair, tuple) and len(pair) == 2  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
        if not is_pair or isinstance(pair[1], bool) or not isinstance(pair[1], int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{argument} must be pairs (layer, head), got {pair!r}")
        if pair[1] < 0:
            raise ValueError(f"{argument}: a head must be at least 0, got {pair!r}")
    return chosen
