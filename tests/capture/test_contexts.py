"""Contexts of two models in two threads, entered and left in any order."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from regard.capture import Seen
from regard.capture.capture import Capture
from regard.internals import modes
from regard.patterns import pairs
from tests.capture.traces import HEADS, WIDTH, Fault, inputs, left_behind, stack

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

NUM_CONTEXTS = 4


class Written(nn.Module):
    """Attention that is written down."""

    num_heads = HEADS

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        weights = (query @ key.mT / 2).softmax(dim=-1)
        return x + (weights @ value).transpose(1, 2).flatten(2)


def models() -> tuple[nn.Sequential, nn.Sequential]:
    """Return a model with a kernel, and one that contains it and attention of its own."""
    inner = stack(seed=0)
    torch.manual_seed(1)
    return inner, nn.Sequential(inner, Written())


INNER, OUTER = models()


def contexts(active: dict[int, Seen]) -> list[Callable[[], AbstractContextManager[Any]]]:
    """Return the four contexts; the calls that are watched are in `active`, by their number."""

    @contextmanager
    def watched(number: int, model: nn.Module) -> Generator[None]:
        with regard.watch(model) as active[number]:
            yield

    return [
        lambda: watched(0, INNER),
        lambda: regard.ablate(OUTER, [("0.1", 0), ("1", 1)]),
        lambda: regard.knock_out(INNER, pairs(keys=[1, 3])),
        lambda: watched(3, OUTER),
    ]


def expected_output(model: nn.Module, active: frozenset[int]) -> Tensor:
    """Return what a model computes under some contexts, without any of them."""
    x = inputs()
    layers: list[Any] = [*INNER, OUTER[1]] if model is OUTER else [*INNER]
    for number, layer in enumerate(layers):
        parts = layer.mixed(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = query @ key.mT / 2
        if 2 in active and number < 2:
            scores[..., [1, 3]] = -torch.inf
        heads = scores.softmax(dim=-1) @ value
        # `ablate(OUTER)` knows the modules of INNER too.
        if 1 in active and number > 0:
            heads[:, number - 1] = 0.0
        x = x + heads.transpose(1, 2).flatten(2)
    return x


class Thread:
    """The contexts of one thread."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(max_workers=1)
        self.active: dict[int, Seen] = {}
        self.left: list[tuple[Seen, int]] = []
        self.make = contexts(self.active)
        self.entered: dict[int, AbstractContextManager[Any]] = {}
        self.ran: dict[int, bool] = {}

    def toggle(self, number: int, *, fail: bool) -> None:
        """Enter a context, or leave it, perhaps by an exception."""
        if number not in self.entered:
            self.entered[number] = self.make[number]()
            self.entered[number].__enter__()
            self.ran[number] = False
            return
        context = self.entered.pop(number)
        if fail:
            # The exception is left to raise: returned as False, or raised again.
            with suppress(Fault):
                assert not context.__exit__(Fault, Fault(), None)
        elif self.ran[number]:
            context.__exit__(None, None, None)
        else:
            with pytest.raises(RuntimeError, match=r"no attention was seen|called attention"):
                context.__exit__(None, None, None)
        if number in self.active:
            seen = self.active.pop(number)
            self.left.append((seen, len(seen)))

    def run(self, model: nn.Module) -> None:
        """Run a model, and compare its output and the calls that were seen."""
        counts = {number: len(seen) for number, seen in self.active.items()}
        output = model(inputs())
        expected = expected_output(model, frozenset(self.entered))
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)

        for number in self.entered:
            # The ablated heads are of INNER and of the rest of OUTER.
            self.ran[number] |= number != 1 or model is OUTER
        for number, seen in self.active.items():
            assert len(seen) == counts[number] + (3 if model is OUTER and number == 3 else 2)
            seen.verify()
        assert all(len(seen) == count for seen, count in self.left)


steps = st.tuples(
    st.integers(0, 1),
    st.one_of(
        st.tuples(st.just("toggle"), st.integers(0, NUM_CONTEXTS - 1), st.booleans()),
        st.tuples(st.just("run"), st.booleans()),
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=4, max_size=24))
def test_any_order(program: list[Any]) -> None:
    before = left_behind(OUTER)
    threads = [Thread(), Thread()]
    try:
        for thread, (action, *arguments) in program:
            if action == "toggle":
                number, fail = arguments
                work = threads[thread].executor.submit(threads[thread].toggle, number, fail=fail)
            else:
                model = INNER if arguments[0] else OUTER
                work = threads[thread].executor.submit(threads[thread].run, model)
            work.result()
    finally:
        for thread in threads:
            for number in list(thread.entered):
                thread.executor.submit(thread.toggle, number, fail=True).result()
            stacks = thread.executor.submit(modes)
            assert stacks.result() == []
            thread.executor.shutdown()
    assert left_behind(OUTER) == before


def test_contexts_of_a_thread_share_one_capture() -> None:
    with regard.watch(OUTER), regard.ablate(OUTER, [("1", 1)]), regard.knock_out(INNER, pairs()):
        assert len([mode for mode in modes() if isinstance(mode, Capture)]) == 1
        assert max(left_behind(INNER)["hooks"]) == 1
        OUTER(inputs())


def test_a_thread_that_ended_inside_a_context_leaves_later_ones_alone() -> None:
    before = left_behind(OUTER)
    abandoned = [regard.watch(OUTER), regard.watch(OUTER)]
    lengths: list[int] = []

    def abandon() -> None:
        for context in abandoned:
            context.__enter__()

    def watch() -> None:
        with regard.watch(OUTER) as seen, regard.ablate(OUTER, [("1", 0)]):
            OUTER(inputs())
            lengths.append(len(seen))

    # Linux gives the number of the first thread to the next ones.
    for work in (abandon, watch, watch):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert lengths == [3, 3]
    for context in abandoned:
        context.__exit__(Fault, Fault(), None)
    assert left_behind(OUTER) == before
