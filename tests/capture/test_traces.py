"""Watching leaves nothing behind, however it ends, and leaves the compiler alone."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.capture import Seen
from tests.capture.calls import Kernel
from tests.capture.traces import (
    MODELS,
    Fault,
    inputs,
    left_behind,
    llama,
    random,
    run_and_fail,
    same,
    stack,
)
from tests.elsewhere import Elsewhere

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "no_trace")


def run_in_the_block(model: nn.Module, given: dict[str, Any]) -> None:
    with regard.watch(model):
        model(**given)


def fail_in_the_block(model: nn.Module, given: dict[str, Any]) -> None:
    with pytest.raises(Fault), regard.watch(model):
        run_and_fail(model, given)


def interrupt_the_block(model: nn.Module, given: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt), regard.watch(model):
        raise KeyboardInterrupt


def see_nothing(model: nn.Module, given: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="no attention was seen"), regard.watch(model):
        pass


def fail_in_the_model(model: nn.Module, given: dict[str, Any]) -> None:
    def fail(*_: Any) -> None:
        raise Fault

    hook = list(model.modules())[-1].register_forward_hook(fail)
    with pytest.raises(Fault), regard.watch(model):
        model(**given)
    hook.remove()


def fail_inside_and_go_on(model: nn.Module, given: dict[str, Any]) -> None:
    with regard.watch(model):
        with pytest.raises(Exception, match=r".*"):
            model(**{name: value[..., None] for name, value in given.items()})
        model(**given)


def fail_in_both(model: nn.Module, given: dict[str, Any]) -> None:
    with pytest.raises(Fault), regard.watch(model), regard.watch(model):
        run_and_fail(model, given)


def refuse(model: nn.Module, given: dict[str, Any]) -> None:
    with (
        pytest.raises(ValueError, match="where must match a module"),
        regard.watch(model, where="no such"),
    ):
        pass
    with pytest.raises(ValueError, match="keep must be"), regard.watch(model, keep="no such"):
        pass


ENDS = [
    run_in_the_block, fail_in_the_block, interrupt_the_block, see_nothing, fail_in_the_model,
    fail_inside_and_go_on, fail_in_both, refuse,
]  # fmt: skip


class TestAfterwards:
    @pytest.mark.parametrize("end", ENDS)
    @pytest.mark.parametrize("name", MODELS)
    def test_nothing_is_left(self, name: str, end: Callable[..., None]) -> None:
        model, given = MODELS[name]()
        before = left_behind(model)
        end(model, given)
        assert left_behind(model) == before

    def test_something_is_there_meanwhile(self) -> None:
        """The test above could see it."""
        model, given = llama()
        before = left_behind(model)
        with regard.watch(model):
            during = left_behind(model)
            model(**given)
        changed = {name for name in before if before[name] != during[name]}
        assert changed == {"hooks", "modes", "asked", "interface", "flex"}

    @pytest.mark.parametrize("fault", [Fault(), KeyboardInterrupt()])
    def test_a_fault_in_the_middle(self, fault: BaseException) -> None:
        model = stack(3)
        model[1].fault = fault
        before = left_behind(model)
        with pytest.raises(type(fault)), regard.watch(model) as seen:
            model(inputs())
        assert left_behind(model) == before
        # What came before it was seen.
        assert [call.module for call in seen] == ["0", "1"]

    def test_a_fault_that_is_caught_inside(self) -> None:
        model, other = stack(3), stack(1)
        with regard.watch(model) as seen:
            model[1].fault = Fault()
            with pytest.raises(Fault):
                model(inputs())
            # No module of the model is running any more.
            other(inputs())
            model[1].fault = None
            model(inputs())
        assert [call.module for call in seen] == ["0", "1", "0", "1", "2"]

    def test_a_fault_of_the_kernel_comes_through(self) -> None:
        kernel = Kernel(F.scaled_dot_product_attention)
        x = random(1, 2, 3, 4)
        before = left_behind(kernel)
        with pytest.raises(RuntimeError) as plain:
            kernel(x, x[..., :2], x)
        with pytest.raises(RuntimeError) as watched, regard.watch(kernel):
            kernel(x, x[..., :2], x)
        assert str(watched.value) == str(plain.value)
        assert left_behind(kernel) == before

    def test_hooks_of_others_stay(self) -> None:
        model = stack()
        called: list[str] = []
        model[0].register_forward_hook(lambda *_: called.append("after"))
        model[0].register_forward_pre_hook(lambda *_: called.append("before"))
        with regard.watch(model):
            model(inputs())
        model(inputs())
        assert called == ["before", "after"] * 2

    def test_again(self) -> None:
        model = stack()
        found = []
        for seed in (0, 1, 0):
            with regard.watch(model) as seen:
                model(inputs(seed))
            found.append(seen)
        assert [len(seen) for seen in found] == [2, 2, 2]
        first, second, third = (seen[1].matrix.dense() for seen in found)
        same(first, third)
        assert not torch.equal(first, second)
        model(inputs())
        assert [len(seen) for seen in found] == [2, 2, 2]


def compiled(how: str) -> None:
    """Assert that a compiled model is seen as it is, and runs compiled before and after."""
    graphs: list[Any] = []

    def backend(graph: Any, example: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = stack(3)
    with regard.watch(model) as expected, torch.no_grad():
        output = model(inputs())
    ran: list[int] = []
    if how == "wrapped":
        fast = torch.compile(model, backend=backend)
    elif how == "in place":
        fast = model
        model.compile(backend=backend)
    else:
        fast = model
        for layer in model:
            layer.compile(backend=backend)
    with torch.no_grad():
        for turn in range(2):
            torch.testing.assert_close(fast(inputs()), output)
            ran.append(len(graphs))
            with regard.watch(fast) as seen:
                torch.testing.assert_close(fast(inputs()), output)
            assert [call.module for call in seen] == ["0", "1", "2"], turn
            for call, other in zip(seen, expected, strict=True):
                same(call.matrix.dense(), other.matrix.dense())
            seen.verify()
            assert len(graphs) == ran[-1]
        # What was compiled before is still used, and what is new is compiled.
        fast(inputs())
        assert len(graphs) == ran[-1] == ran[0] > 0
        longer = torch.cat([inputs(), inputs()], dim=1)
        torch.testing.assert_close(fast(longer), expected_of(model, longer))
        assert len(graphs) > ran[-1]


def expected_of(model: nn.Module, x: Tensor) -> Tensor:
    plain = stack(3)
    plain.load_state_dict({k.replace("_orig_mod.", ""): v for k, v in model.state_dict().items()})
    return plain(x)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wrapped", "in place", "layer by layer"])
def test_compiled_models(how: str, elsewhere: Elsewhere) -> None:
    elsewhere(compiled, how)


def test_the_compiler_is_left_alone() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, example: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    model = stack(1)
    with regard.watch(model):
        model(inputs())
    x = torch.ones(3)
    assert torch.equal(function(x), x.sin() + 1)
    assert len(graphs) == 1


class Plain(nn.Module):
    """One layer of attention, by a kernel or written down."""

    num_heads = 2

    def __init__(self, *, by_hand: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.by_hand = nn.Linear(8, 24), by_hand

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.by_hand:
            weights = (query @ key.transpose(2, 3) / 2).softmax(dim=-1)
            return weights @ value
        return nn.functional.scaled_dot_product_attention(query, key, value)


WAYS = {
    "watch": lambda model: regard.watch(model),
    "watch, with values": lambda model: regard.watch(model, values=True),
    "ablate": lambda model: regard.ablate(model, [("", 0)]),
    "knock_out": lambda model: regard.knock_out(model, regard.pairs(keys=[1])),
}


def compiled_around(by_hand: bool, fullgraph: bool) -> None:
    """Assert that a compiled function that calls a model is seen, or refused with the reason."""
    graphs: list[Any] = []

    def backend(graph: Any, example: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model, x = Plain(by_hand=by_hand).eval(), torch.randn(2, 5, 8)
    step = torch.compile(lambda x: 2 * model(x), backend=backend, fullgraph=fullgraph)
    before = step(x)
    for way in WAYS.values():
        with way(model) as plain:
            expected = 2 * model(x)
        if fullgraph:
            with pytest.raises(Exception, match=r"see only what runs uncompiled"), way(model):
                step(x)
            continue
        with way(model) as seen:
            torch.testing.assert_close(step(x), expected)
        if isinstance(seen, Seen):
            seen.verify()
            same(seen[0].matrix.dense(), plain[0].matrix.dense())
    # It is compiled as before.
    count = len(graphs)
    torch.testing.assert_close(step(x), before)
    assert len(graphs) == count


@pytest.mark.slow
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_compiled_functions_around_a_model(
    by_hand: bool, fullgraph: bool, elsewhere: Elsewhere
) -> None:
    elsewhere(compiled_around, by_hand, fullgraph)


@pytest.mark.parametrize("copied", ["copy", "pickle"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_copies_made_inside(way: Callable[[nn.Module], Any], copied: str) -> None:
    model, x = Plain().eval(), torch.randn(2, 5, 8)
    before = model(x)
    with way(model) as seen:
        altered = model(x)
        other = copy.deepcopy(model) if copied == "copy" else pickle.loads(pickle.dumps(model))
        assert torch.equal(other(x), before)
        assert torch.equal(model(x), altered)
    if isinstance(seen, Seen):
        assert len(seen) == 2
    assert torch.equal(other(x), before)
    with regard.watch(other) as seen:
        other(x)
    assert len(seen) == 1


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("by_hand", [False, True])
class TestTransforms:
    """Under transforms of torch.func there are no numbers to be read."""

    REASON = r"it runs under torch.func \(vmap, grad, jacrev, …\), where tensors have no memory"

    @pytest.mark.parametrize("effects", [False, True])
    @pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.jacrev])
    def test_watch(self, transform: Callable[..., Any], effects: bool, by_hand: bool) -> None:
        model, x = Plain(by_hand=by_hand), torch.randn(3, 1, 5, 8)
        given = x if transform is torch.func.vmap else x[0]
        expected = transform(model)(given)
        with regard.watch(model, effects=effects) as seen:
            torch.testing.assert_close(transform(model)(given), expected)
        assert re.fullmatch(self.REASON, seen[0].problem)

    def test_knock_out(self, by_hand: bool) -> None:
        model, x = Plain(by_hand=by_hand), torch.randn(3, 1, 5, 8)
        pattern = regard.pairs(keys=[1])
        with pytest.raises(ValueError, match=self.REASON), regard.knock_out(model, pattern):
            torch.func.vmap(model)(x)

    def test_ablate(self, by_hand: bool) -> None:
        model, x = Plain(by_hand=by_hand), torch.randn(3, 1, 5, 8)
        with regard.ablate(model, [("", 0)]):
            found = torch.func.vmap(model)(x)
            expected = torch.stack([model(one) for one in x])
        torch.testing.assert_close(found, expected)
