"""Changing what calls of attention return while a model runs."""

import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, NoReturn

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.capture.model_listener import ModelListener
from regard.capture.module_stack import Frame
from regard.capture.product import Product
from regard.capture.raw_call import RawCall
from regard.capture.reading import Reading, are_heads_known, num_heads_of, read_axes
from regard.capture.understood import as_computed
from regard.distributed.head_shards import head_shard
from regard.internals import (
    TRANSFORMED,
    in_functorch,
    in_reentrant_checkpoint,
    is_backward,
    without_torch_function,
)
from regard.interventions.layers import Layers


class CallSite(NamedTuple):
    """Who makes a call.

    Attributes:
        name: the path of the module.
        module: the module.
        frame: its run.
        cross: whether it looks at another sequence, if that is known.
    """

    name: str
    module: nn.Module
    frame: Frame
    cross: bool | None


class Alteration(ModelListener):
    """Changes the calls of some layers, in the thread in which it is made.

    What it can't change exactly, it refuses. It is at work in the backward pass too, where a model
    that saves memory computes its calls a second time.

    Args:
        model: the model.
        layers: its layers.
    """

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        super().__init__(model)
        self._layers = layers
        self._problem: ValueError | None = None
        self._to_come: Counter[str] = Counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if kind is None:
            if self._problem is not None:
                raise self._problem
            self._layers.check()
            for name in +self._to_come:
                raise RuntimeError(
                    f"{name or 'the model'} is checkpointed, so a backward pass would compute it "
                    "again, but unaltered: call backward() inside the block and in its thread, as "
                    "on CPUs, or turn checkpointing off"
                )

    def catch(
        self, kernel: str, module: nn.Module | None, read: Callable[[], RawCall]
    ) -> RawCall | None:
        site = self.site(module)
        if site is None:
            return None
        with without_torch_function():
            try:
                call = as_computed(read())
            except ValueError as error:
                self.refuse(site, str(error))
            self._ran(site)
            by_interface = module is not None or self.cross is not None
            known = by_interface or are_heads_known(call.query, call.value, self.running)
            if self.needs_heads and not known:
                said = num_heads_of(site.module)
                heads = "heads" if said is None else f"{said} heads"
                self.refuse(site, f"its {heads} can't be told from its batch")
            self._check_all_heads(site, call.query.shape[1], call.query.shape[-1])
            with self.explained(site):
                return self.altered(site, call)

    def catch_product(self, product: Product, num_heads: int | None) -> Tensor | None:
        site = self.site(None)
        if site is None:
            return None
        if product.again:
            self.altered_again(site)
            return None
        with without_torch_function():
            try:
                reading = read_axes(product, self.running, num_heads)
            except ValueError as error:
                self.refuse(site, str(error))
            self._ran(site)
            if self.needs_heads and not reading.heads_known:
                self.refuse(site, "its heads can't be told from its batch")
            self._check_all_heads(site, reading.weights.shape[1], None)
            with self.explained(site):
                return self.altered_product(site, product, reading, num_heads)

    def catch_lost(self, frame: Frame, reason: str) -> None:
        site = self.site(frame.module)
        if site is None:
            return
        # If the model has failed already, that is what is to be told.
        failed = sys.exc_info()[0] is not None
        try:
            self.refuse(site, reason)
        except ValueError as error:
            self._problem = error
            if not failed:
                raise

    def _ran(self, site: CallSite) -> None:
        """Take down a call, and whether the backward pass is to compute it again."""
        self._layers.ran(site.name)
        if is_backward():
            self._to_come[site.name] -= 1
        elif self.running and self.running[0].grad and in_reentrant_checkpoint():
            self._to_come[site.name] += 1

    @property
    def needs_heads(self) -> bool:
        """Whether it has to tell heads and sequences apart."""
        return True

    @abstractmethod
    def altered(self, site: CallSite, call: RawCall) -> RawCall | None:
        """Return a call as it is to be, or None to leave it as it is."""

    @abstractmethod
    def altered_product(
        self, site: CallSite, product: Product, reading: Reading, num_heads: int | None
    ) -> Tensor | None:
        """Return what a product is to be, or None to leave it as it is."""

    @contextmanager
    def explained(self, site: CallSite) -> Generator[None]:
        """Refuse a call whose numbers can't be read, under transforms of `torch.func`."""
        try:
            yield
        except (RuntimeError, NotImplementedError):
            if in_functorch():
                self.refuse(site, TRANSFORMED)
            raise

    def altered_again(self, site: CallSite) -> None:
        """Accept that weights are multiplied with other values too; refuse by default."""
        self.refuse(site, "its weights are multiplied with values more than once")

    def site(self, module: nn.Module | None) -> CallSite | None:
        """Return who makes a call, by default the running module; None if it is left alone."""
        module = self._places.current if module is None else module
        if module is None or self._num_pauses:
            return None
        name = self._places.name(module)
        if name is None or not self._layers.has(name):
            return None
        frames = (frame for frame in reversed(self.running) if frame.module is module)
        frame = next(frames, None) or Frame(module, (), {})
        return CallSite(name, module, frame, self.is_cross(name, module))

    def output_places(
        self, site: CallSite, product: Product, num_heads: int | None
    ) -> Int[Tensor, "batch heads queries value_dim"]:
        """Return where in the result of a product the output of each head is, as flat indices.

        Raises:
            ValueError: the result is something else than the output.
        """
        result, read = product.result, product.read
        assert result is not None
        assert read is not None
        # The same is read from the numbers of the places.
        numbers = torch.arange(result.numel(), dtype=torch.float64, device=result.device)
        numbered = read(numbers.view(result.shape), None)
        assert numbered is not None
        numbered = replace(product, output=numbered.output)
        found = read_axes(numbered, self.running, num_heads).output
        if not torch.equal(found.flatten().sort().values, numbers):
            self.refuse(site, "something is added to its output by the function that computes it")
        return found.long()

    def _check_all_heads(self, site: CallSite, heads: int, head_dim: int | None) -> None:
        """Raise ValueError if other processes have heads of a layer, or may have."""
        try:
            shard = head_shard(site.module, heads, head_dim)
        except ValueError as error:
            self.refuse(site, str(error))
        if shard.total != heads:
            self.refuse(site, f"{shard.total - heads} of its {shard.total} heads are elsewhere")

    def refuse(self, site: CallSite, reason: str) -> NoReturn:
        """Raise ValueError: a call can't be altered."""
        raise ValueError(f"the attention of {site.name or 'the model'} can't be altered: {reason}")


def check_heads(name: str, heads: list[int], there: int) -> None:
    """Raise ValueError if a layer has not so many heads."""
    if heads and max(heads) >= there:
        raise ValueError(f"heads: {name} has {there} heads, counted from 0, got head {max(heads)}")
