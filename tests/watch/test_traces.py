"""Watching leaves nothing behind, keeps to itself, and stands faults."""

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface

import regard
from regard.matrix import Entropy
from regard.watch import Overwritten
from tests.watch.zoo import ZOO, made

HEADS, DIM, LENGTH = 2, 4, 6
WIDTH = HEADS * DIM


class Fault(Exception):
    """What goes wrong in these tests."""


class Attention(nn.Module):
    """Self-attention that fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)
        self.fault: BaseException | None = None

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        output = F.scaled_dot_product_attention(*parts)
        if self.fault is not None:
            raise self.fault
        return x + output.transpose(1, 2).flatten(2)


class Kernel(nn.Module):
    """Calls a function, which is its attention, as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(found: Tensor, expected: Tensor) -> None:
    """Hold weights against each other, which may be rounded differently where memory lies apart."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def inputs(seed: int = 0) -> Tensor:
    return random(2, LENGTH, WIDTH, seed=seed)


def stack(num_layers: int = 2, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(*(Attention() for _ in range(num_layers)))


def ours() -> tuple[nn.Module, dict[str, Any]]:
    return stack(), {"input": inputs()}


def torchs() -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    return encoder, {"src": inputs()}


def llama() -> tuple[nn.Module, dict[str, Any]]:
    return made(ZOO["Llama"]), ZOO["Llama"].inputs("left")


MODELS = {"ours": ours, "torch": torchs, "transformers": llama}


def left_behind(model: nn.Module) -> dict[str, Any]:
    """Return all that watching changes for a while."""
    return {
        "hooks": [
            len(hooks)
            for module in model.modules()
            for hooks in (
                module._forward_hooks,
                module._forward_pre_hooks,
                module._forward_hooks_always_called,
                module._backward_hooks,
            )
        ],
        "modes": torch.overrides._get_current_function_mode_stack(),
        "asked": torch.overrides.has_torch_function((torch.ones(1),)),
        "interface": AttentionInterface.get_interface,
        "functions": dict(AttentionInterface._global_mapping),
        "flex": flex_attention.__code__,
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "stance": torch._dynamo.eval_frame._stance.stance,
        "keys": sorted(vars(model)),
        "functional": (F.scaled_dot_product_attention, F.softmax, F.multi_head_attention_forward),
    }


@pytest.fixture(autouse=True)
def no_trace() -> Iterator[None]:
    """Make sure that no test leaves anything behind."""
    nothing = nn.Module()
    before = left_behind(nothing)
    assert before["modes"] == []
    assert not before["asked"]
    yield
    assert left_behind(nothing) == before


pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


def run_in_the_block(model: nn.Module, given: dict[str, Any]) -> None:
    with regard.watch(model):
        model(**given)


def run_and_fail(model: nn.Module, given: dict[str, Any]) -> None:
    model(**given)
    raise Fault


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
    with pytest.raises(ValueError, match="names no module"), regard.watch(model, where="no such"):
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


class TestNested:
    @pytest.mark.parametrize("name", MODELS)
    def test_the_same_model(self, name: str) -> None:
        model, given = MODELS[name]()
        with regard.watch(model) as alone:
            model(**given)
        with regard.watch(model) as outer:
            with regard.watch(model) as inner:
                model(**given)
            model(**given)
        assert len(outer) == 2 * len(inner) == 2 * len(alone) > 0
        for number, call in enumerate(outer):
            expected = alone[number % len(alone)]
            assert (call.module, call.looks) == (expected.module, expected.looks)
            same(call.matrix.dense(), expected.matrix.dense())
        for call, expected in zip(inner, alone, strict=True):
            same(call.matrix.dense(), expected.matrix.dense())

    @pytest.mark.parametrize("first", MODELS)
    @pytest.mark.parametrize("second", MODELS)
    def test_two_models(self, first: str, second: str) -> None:
        (one, one_given), (two, two_given) = MODELS[first](), MODELS[second]()
        with regard.watch(one) as alone:
            one(**one_given)
        with regard.watch(one) as outer, regard.watch(two) as inner:
            one(**one_given)
            two(**two_given)
            one(**one_given)
        assert [call.module for call in outer] == [call.module for call in alone] * 2
        assert len(inner) == 2
        for number, call in enumerate(outer):
            same(call.matrix.dense(), alone[number % 2].matrix.dense())

    @pytest.mark.parametrize("name", MODELS)
    def test_each_has_its_own_options(self, name: str) -> None:
        model, given = MODELS[name]()
        with (
            regard.watch(model, keep="copies") as outer,
            regard.watch(model, where=1, keep=[Entropy()], check=False) as inner,
        ):
            model(**given)
        assert len(outer) == 2
        (call,) = inner
        assert call.module == outer[1].module
        assert call.check.passed is None
        assert outer[1].check.passed
        torch.testing.assert_close(call.results[0].nats, outer[1].matrix.entropy().nats)

    def test_a_part_inside_of_the_whole(self) -> None:
        model, given = llama()
        with regard.watch(model) as whole, regard.watch(model.layers[1]) as part:
            model(**given)
        assert [call.module for call in part] == ["self_attn"]
        same(part[0].matrix.dense(), whole[1].matrix.dense())

    @pytest.mark.parametrize("name", MODELS)
    def test_a_fault_in_the_inner_one(self, name: str) -> None:
        model, given = MODELS[name]()
        with regard.watch(model) as outer:
            with pytest.raises(Fault), regard.watch(model) as inner:
                run_and_fail(model, given)
            model(**given)
        assert (len(outer), len(inner)) == (4, 2)

    @pytest.mark.parametrize("cross", [True, False])
    @pytest.mark.parametrize("averaged", [True, False])
    @pytest.mark.parametrize("need_weights", [True, False])
    def test_multi_head_attention(self, need_weights: bool, averaged: bool, cross: bool) -> None:
        torch.manual_seed(0)
        attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        x, y = inputs(0), inputs(1) if cross else None
        options = {"need_weights": need_weights, "average_attn_weights": averaged}
        # Of the same length, so that only who is asked knows which it is.
        given = (x, x, x) if y is None else (x, y, y)
        expected = attention(*given, average_attn_weights=False)[1]
        with ExitStack() as watching:
            watchers = [watching.enter_context(regard.watch(attention)) for _ in range(3)]
            output, weights = attention(*given, **options)
        torch.testing.assert_close(output, attention(*given)[0])
        if need_weights:
            torch.testing.assert_close(weights, expected.mean(dim=1) if averaged else expected)
        for seen in watchers:
            (call,) = seen
            assert (call.looks, call.batch, call.heads) == ("cross" if cross else "self", 2, HEADS)
            same(call.matrix.dense(), expected)


@contextmanager
def many_switches() -> Iterator[None]:
    """Let threads interrupt each other as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(*tasks: Callable[[], None]) -> None:
    """Run all at once, and raise what one of them raised."""
    faults: list[BaseException] = []
    together = threading.Barrier(len(tasks))

    def run(task: Callable[[], None]) -> None:
        try:
            together.wait()
            task()
        except BaseException as fault:
            faults.append(fault)
            raise

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    with many_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]


class TestThreads:
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_each_sees_its_own(self) -> None:
        prepared = {name: prepare() for name, prepare in MODELS.items()}
        prepared["another"] = llama()
        expected = {}
        for name, (model, given) in prepared.items():
            with regard.watch(model) as seen, torch.no_grad():
                model(**given)
            expected[name] = [(call.module, call.matrix.dense()) for call in seen]
        unwatched, unwatched_given = llama()
        with torch.no_grad():
            output = unwatched(**unwatched_given)[0]

        def watching(name: str) -> None:
            model, given = prepared[name]
            with torch.no_grad():
                for _ in range(8):
                    with regard.watch(model) as seen:
                        model(**given)
                    assert [call.module for call in seen] == [
                        module for module, _ in expected[name]
                    ]
                    for call, (_, weights) in zip(seen, expected[name], strict=True):
                        same(call.matrix.dense(), weights)

        def not_watching() -> None:
            with torch.no_grad():
                for _ in range(20):
                    assert torch.equal(unwatched(**unwatched_given)[0], output)

        in_threads(not_watching, *(lambda name=name: watching(name) for name in prepared))

    def test_watching_in_one_thread_running_in_another(self) -> None:
        model, given = llama()
        with regard.watch(model) as seen:
            in_threads(lambda: model(**given))
            assert len(seen) == 0
            model(**given)
        assert len(seen) == 2

    def test_nobody_is_missed_when_others_come_and_go(self) -> None:
        model, given = llama()
        done = threading.Event()

        def coming_and_going() -> None:
            other = stack(1)
            while not done.is_set():
                with pytest.raises(RuntimeError, match="no attention"), regard.watch(other):
                    pass

        def watching() -> None:
            try:
                for _ in range(12):
                    with regard.watch(model, check=False) as seen, torch.no_grad():
                        model(**given)
                    assert len(seen) == 2
            finally:
                done.set()

        in_threads(coming_and_going, coming_and_going, watching)


class TestWhatIsKept:
    @pytest.mark.parametrize("name", ["Llama", "gpt-oss", "T5", "BLOOM", "Gemma 2"])
    def test_without_its_model(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind)
        with regard.watch(model) as seen:
            model(**kind.inputs("left"))
        before = [call.matrix.dense() for call in seen]
        with regard.watch(model) as seen:
            model(**kind.inputs("left"))
        gone = weakref.ref(model)
        parts = [weakref.ref(part) for part in model.modules()]
        del model
        gc.collect()
        assert gone() is None
        assert all(part() is None for part in parts)
        for call, expected in zip(seen, before, strict=True):
            same(call.matrix.dense(), expected)
        seen.verify()

    @pytest.mark.parametrize("name", ["Llama", "gpt-oss", "T5", "BLOOM", "Gemma 2"])
    def test_weights_that_are_changed(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind)
        with regard.watch(model) as alone, torch.no_grad():
            model(**kind.inputs("left"))
        before = [call.matrix.dense() for call in alone]
        with regard.watch(model) as seen:
            model(**kind.inputs("left"))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(-1.5)
            model(**kind.inputs("left"))
        model.half()
        model.to(torch.float64)
        assert len(seen) == 2 * len(before)
        for call, expected in zip(seen, before, strict=False):
            same(call.matrix.dense(), expected)
        last = seen[-1].matrix.dense()
        assert not torch.allclose(last, before[-1], atol=1e-3)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_a_change_of_type_inside(self, dtype: torch.dtype) -> None:
        model, given = llama()
        with regard.watch(model) as seen, torch.no_grad():
            model(**given)
            model.to(dtype)
            model(**given)
        assert [call.dtype for call in seen] == [torch.float32] * 2 + [dtype] * 2
        first, second = seen[0].matrix.dense(), seen[2].matrix.dense()
        # Scores of some tens are rounded, and weights are their exponentials.
        within = 100 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
        torch.testing.assert_close(second.float(), first, rtol=0, atol=within)
        seen.verify()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("name", ["Llama", "Gemma 2", "BERT"])
    def test_half_precision(self, name: str, dtype: torch.dtype) -> None:
        kind = ZOO[name]
        model = made(kind).to(dtype)
        with regard.watch(model) as seen, torch.no_grad():
            model(**kind.inputs("none"))
        for call in seen:
            held = call.held
            exact = regard.AttentionMatrix(
                call.query.float(),
                call.key.float(),
                pattern=held.pattern,
                bias=held.bias,
                scale=held.scale,
                positions=held.positions,
            )
            found = call.matrix.dense()
            torch.testing.assert_close(
                found.float(), exact.dense(), rtol=torch.finfo(dtype).eps, atol=1e-6
            )

    def test_no_graph_is_kept(self) -> None:
        model = stack()
        # Its memory is in use for as long as a backward pass could follow.
        array = inputs().numpy().copy()
        with regard.watch(model) as seen:
            output = model(torch.from_numpy(array))
        memory = weakref.ref(array)
        del array
        gc.collect()
        assert memory() is not None
        del output
        gc.collect()
        assert memory() is None
        assert not any(x.requires_grad for call in seen for x in (call.query, call.key))


class TestFaultsOfModels:
    @pytest.mark.parametrize("keep", ["tensors", "copies", [Entropy()]])
    def test_nan(self, keep: Any) -> None:
        model = stack(3)
        nn.init.constant_(model[1].mixed.weight, torch.nan)
        expected = model(inputs())
        with regard.watch(model, keep=keep) as seen:
            found = model(inputs())
        assert torch.equal(found.isnan(), expected.isnan())
        assert [call.check.passed for call in seen] == [True, False, False]
        assert [str(call.check) for call in seen[1:]] == ["✗ NaN"] * 2
        rule = r"^call 1 \(1\), computed by sdpa, returned NaN .*; 1 other calls are wrong too$"
        with pytest.raises(RuntimeError, match=rule):
            seen.verify()

    @pytest.mark.parametrize("part", ["query", "key", "value"])
    def test_a_single_nan(self, part: str) -> None:
        x = {name: random(1, 2, 5, 4, seed=seed) for seed, name in enumerate(PARTS)}
        # The last row is always compared.
        x[part][0, 1, -1, 2] = torch.nan
        kernel = Kernel(F.scaled_dot_product_attention)
        with regard.watch(kernel) as seen:
            kernel(*x.values())
        with pytest.raises(RuntimeError, match="returned NaN"):
            seen.verify()

    @pytest.mark.parametrize("keep", ["tensors", [Entropy()]])
    @pytest.mark.parametrize("kind", ["plain", "causal", "boolean", "numbers", "attend"])
    @pytest.mark.parametrize(
        ("batch", "queries", "keys"), [(0, 5, 5), (2, 0, 5), (2, 0, 0), (2, 5, 0), (0, 1, 5)]
    )
    def test_zero_length(self, kind: str, batch: int, queries: int, keys: int, keep: Any) -> None:
        query, key = random(batch, 2, queries, 4), random(batch, 2, keys, 4)
        allowed = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
        run = {
            "plain": lambda q, k: F.scaled_dot_product_attention(q, k, k),
            "causal": lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True),
            "boolean": lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=allowed),
            "numbers": lambda q, k: F.scaled_dot_product_attention(
                q, k, k, attn_mask=allowed.float()
            ),
            "attend": lambda q, k: regard.attend(q, k, k),
        }[kind]
        kernel = Kernel(run)
        expected = kernel(query, key)
        with regard.watch(kernel, keep=keep) as seen:
            found = kernel(query, key)
        assert torch.equal(found, expected)
        (call,) = seen
        assert call.problem == ""
        assert (call.batch, call.queries, call.keys) == (batch, queries, keys)
        seen.verify()
        if keep == "tensors":
            assert call.matrix.shape == (batch, 2, queries, keys)
            assert call.matrix.dense().shape == (batch, 2, queries, keys)


PARTS = ("query", "key", "value")


def gradients(model: nn.Module, run: Callable[[], Tensor]) -> list[Tensor]:
    model.zero_grad()
    run().square().sum().backward()
    return [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]


class TestTraining:
    @pytest.mark.parametrize("name", ["Llama", "gpt-oss", "T5", "BERT", "BLOOM"])
    def test_gradients_are_the_same(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind)
        expected = gradients(model, lambda: model(**kind.inputs("left"))[0])
        with regard.watch(model) as seen:
            found = gradients(model, lambda: model(**kind.inputs("left"))[0])
        assert len(found) == len(expected) > 10
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        seen.verify()

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_checkpoints(self, reentrant: bool) -> None:
        model = stack(3)

        def run() -> Tensor:
            x = inputs().requires_grad_()
            for layer in model:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

        expected = gradients(model, run)
        holder = nn.Sequential(Kernel(lambda: run()), model)
        with regard.watch(holder) as seen:
            found = gradients(model, lambda: holder[0]())
        assert [call.module for call in seen] == ["1.0", "1.1", "1.2"]
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        with regard.watch(model) as plain:
            model(inputs())
        for call, other in zip(seen, plain, strict=True):
            same(call.matrix.dense(), other.matrix.dense())

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_checkpoints_of_transformers(self, reentrant: bool) -> None:
        model = made(ZOO["Llama"]).train()
        given = {**ZOO["Llama"].inputs("left"), "use_cache": False}
        expected = gradients(model, lambda: model(**given)[0])
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        with regard.watch(model) as seen:
            found = gradients(model, lambda: model(**given)[0])
        assert [call.module for call in seen] == ["layers.0.self_attn", "layers.1.self_attn"]
        assert all(torch.allclose(*pair) for pair in zip(found, expected, strict=True))

    @pytest.mark.parametrize("name", ["Llama", "gpt-oss", "T5", "BLOOM"])
    def test_inference_mode(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind)
        with regard.watch(model) as expected, torch.no_grad():
            model(**kind.inputs("left"))
        with regard.watch(model) as seen, torch.inference_mode():
            model(**kind.inputs("left"))
        seen.verify()
        for call, other in zip(seen, expected, strict=True):
            same(call.matrix.dense(), other.matrix.dense())
            if call.pattern is not None:
                assert not call.query.is_inference()
        with torch.inference_mode():
            same(seen[0].matrix.dense(), expected[0].matrix.dense())

    def test_a_step_inside(self) -> None:
        """Training in the block, as one does to see how attention develops."""
        model = stack(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with regard.watch(model) as seen:
            for _ in range(3):
                optimizer.zero_grad()
                model(inputs()).square().sum().backward()
                optimizer.step()
        found = [call.matrix.dense() for call in seen]
        assert len(found) == 3
        assert not torch.equal(found[0], found[1])
        assert not torch.equal(found[1], found[2])


class Buffered(nn.Module):
    """Writes a part of each call into memory of its own, always the same."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part
        self.register_buffer("room", torch.zeros(2, HEADS, LENGTH, DIM))

    @torch.no_grad()
    def forward(self, *parts: Tensor) -> Tensor:
        given = dict(zip(PARTS, parts, strict=True))
        self.room.copy_(given[self.part])
        given[self.part] = self.room
        return F.scaled_dot_product_attention(**given)


def four(seed: int) -> list[Tensor]:
    return [random(2, HEADS, LENGTH, DIM, seed=3 * seed + part) for part in range(3)]


def by_the_book(query: Tensor, key: Tensor, added: Tensor | float = 0.0) -> Tensor:
    return (query @ key.mT / DIM**0.5 + added).softmax(dim=-1)


class TestWrittenOver:
    @pytest.mark.parametrize("part", ["query", "key"])
    def test_it_is_noticed(self, part: str) -> None:
        model = Buffered(part)
        with regard.watch(model) as seen:
            model(*four(0))
            model(*four(1))
        name = {"query": "queries", "key": "keys"}[part]
        rule = (
            rf'^call 0 \(the model\): the model wrote over its {name}.*watch it with keep="copies"$'
        )
        with pytest.raises(Overwritten, match=rule):
            _ = seen[0].matrix
        same(seen[1].matrix.dense(), by_the_book(*four(1)[:2]))

    @pytest.mark.parametrize("part", ["query", "key", "value"])
    def test_copies(self, part: str) -> None:
        model = Buffered(part)
        with regard.watch(model, keep="copies") as seen:
            model(*four(0))
            model(*four(1))
        model.room.zero_()
        for number, call in enumerate(seen):
            same(call.matrix.dense(), by_the_book(*four(number)[:2]))

    def test_reductions_are_done_before(self) -> None:
        model = Buffered("key")
        with regard.watch(model, keep=[Entropy()]) as seen:
            model(*four(0))
            model(*four(1))
        for number, call in enumerate(seen):
            a = by_the_book(*four(number)[:2])
            torch.testing.assert_close(call.results[0].nats, -(a * a.log()).sum(dim=-1))

    def test_values_do_not_matter(self) -> None:
        model = Buffered("value")
        with regard.watch(model) as seen:
            model(*four(0))
            model(*four(1))
        same(seen[0].matrix.dense(), by_the_book(*four(0)[:2]))

    def test_inside_inference_mode(self) -> None:
        model = Buffered("key")
        with regard.watch(model) as seen, torch.inference_mode():
            model.room = torch.zeros_like(model.room)
            model(*four(0))
            model(*four(1))
        for number, call in enumerate(seen):
            same(call.matrix.dense(), by_the_book(*four(number)[:2]))

    @pytest.mark.parametrize("keep", ["tensors", "copies"])
    @pytest.mark.parametrize("kernel", ["sdpa", "attend"])
    def test_a_learned_bias(self, kernel: str, keep: str) -> None:
        class Biased(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bias = nn.Parameter(random(1, HEADS, LENGTH, LENGTH, seed=9))

            def forward(self, *parts: Tensor) -> Tensor:
                if kernel == "attend":
                    return regard.attend(*parts, bias=self.bias)
                return F.scaled_dot_product_attention(*parts, attn_mask=self.bias)

        model = Biased()
        with regard.watch(model, keep=keep) as seen:
            model(*four(0))
            with torch.no_grad():
                model.bias.copy_(random(1, HEADS, LENGTH, LENGTH, seed=10))
            model(*four(0))
        first, second = (random(1, HEADS, LENGTH, LENGTH, seed=seed) for seed in (9, 10))
        same(seen[1].matrix.dense(), by_the_book(*four(0)[:2], second))
        # What is not copied may be refused, but must not be wrong.
        with suppress(*([Overwritten] if keep == "tensors" else [])):
            same(seen[0].matrix.dense(), by_the_book(*four(0)[:2], first))

    @pytest.mark.parametrize("inference", [True, False])
    @pytest.mark.parametrize("kind", ["gaps", "stretches"])
    @pytest.mark.parametrize("keep", ["tensors", "copies"])
    def test_a_mask_of_its_own(self, keep: str, kind: str, inference: bool) -> None:
        class Masked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("allowed", torch.empty(LENGTH, LENGTH, dtype=torch.bool))

            def forward(self, allowed: Tensor, *parts: Tensor) -> Tensor:
                self.allowed.copy_(allowed)
                return F.scaled_dot_product_attention(*parts, attn_mask=self.allowed)

        ones = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
        masks = [ones.tril(), ones.triu()]
        if kind == "gaps":
            # No pattern describes these.
            masks = [(random(LENGTH, LENGTH, seed=20 + n) > 0) | ones.diag().diag() for n in (0, 1)]
        with torch.inference_mode(inference):
            model = Masked()
            with regard.watch(model, keep=keep) as seen:
                for allowed in masks:
                    model(allowed, *four(0))
        seen.verify()
        for call, allowed in zip(seen, masks, strict=True):
            added = torch.zeros(LENGTH, LENGTH).masked_fill(~allowed, -torch.inf)
            same(call.matrix.dense(), by_the_book(*four(0)[:2], added))

    def test_weights_of_ones_own(self) -> None:
        """Weights that are dropped in place after the softmax are not those that were seen."""

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            weights = torch.softmax(query @ key.mT / DIM**0.5, dim=-1)
            output = weights @ value
            weights.zero_()
            return output

        kernel = Kernel(attend)
        with regard.watch(kernel, keep="copies") as seen:
            kernel(*four(0))
        same(seen[0].matrix.dense(), by_the_book(*four(0)[:2]))
        with regard.watch(kernel) as seen:
            kernel(*four(0))
        with pytest.raises(Overwritten, match=r"^call 0 "):
            _ = seen[0].matrix


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
def test_compiled_models(how: str, run_python: Callable[..., str]) -> None:
    # The checks of shapes that the tests switch on wrap functions, and torch.compile sees them.
    root = str(Path(__file__).parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); import tests.watch.test_traces as traces"
    run_python("-c", f"{program}; traces.compiled({how!r})")


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
