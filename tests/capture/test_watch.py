"""Which calls `regard.watch` sees, how one is asked for, and whose they are."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.capture import Seen
from regard.matrix import Entropy
from tests.capture.models import NUM_LAYERS, Attention, Model, Twice, inputs, random, rows
from tests.capture.zoo import ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "nothing_registered")


def test_the_block_is_forgotten(model: Model) -> None:
    seen: Any = regard.watch(model)
    model(inputs())
    rule = r"^regard.watch is a context manager: write `with regard.watch\(model\) as seen:`, "
    for asked in (lambda: seen[0], lambda: len(seen), lambda: list(seen)):
        with pytest.raises(TypeError, match=rule):
            asked()
    with pytest.raises(AttributeError, match=rule):
        _ = seen.matrix
    assert "with regard.watch(model) as seen:" in repr(seen)


def test_a_block_that_is_entered_again(model: Model) -> None:
    block = regard.watch(model, where=iter([3]))
    with block as first:
        model(inputs())
        with block as inner:
            model(inputs())
    with block as second:
        model(inputs())
    assert [len(seen) for seen in (first, inner, second)] == [4, 2, 2]
    with pytest.raises(ZeroDivisionError), block:
        _ = 1 // 0
    with block as third:
        model(inputs())
    assert len(third) == 2


class TestWhichCall:
    def test_by_number(self, seen: Any) -> None:
        assert len(seen) == 2 * NUM_LAYERS
        assert [call.index for call in seen] == list(range(2 * NUM_LAYERS))
        assert seen[5].module == "layers.2.cross_attn"
        assert seen[-1] is seen[2 * NUM_LAYERS - 1]
        assert seen[-2 * NUM_LAYERS] is seen[0]

    def test_by_slice(self, seen: Any) -> None:
        some = seen[1::2]
        assert isinstance(some, Seen)
        assert list(some) == [call for call in seen if call.module.endswith("cross_attn")]
        assert some["layers.3.cross_attn"] is seen["layers.3.cross_attn"]
        assert len(seen[100:]) == 0

    def test_by_module(self, seen: Any) -> None:
        for number in range(NUM_LAYERS):
            assert seen[f"layers.{number}.self_attn"] is seen[2 * number]

    @pytest.mark.parametrize("number", [2 * NUM_LAYERS, -2 * NUM_LAYERS - 1])
    def test_no_such_number(self, seen: Any, number: int) -> None:
        rule = rf"^there are 24 calls, counted from 0, got number {number}$"
        with pytest.raises(IndexError, match=rule):
            seen[number]

    def test_before_the_model_was_called(self, model: Model) -> None:
        rule = "^there are no calls yet: call the model inside the block$"
        with regard.watch(model) as seen:
            with pytest.raises(IndexError, match=rule):
                seen[0]
            model(inputs())

    def test_no_such_module(self, seen: Any) -> None:
        rule = r"'layers.0' made no calls; these modules did: layers.0.self_attn, .*, …"
        with pytest.raises(KeyError, match=rule):
            seen["layers.0"]
        with pytest.raises(KeyError, match=r"these modules did: layers.0.self_attn\""):
            seen[:1]["layers.0"]

    @pytest.mark.parametrize(("times", "numbers"), [(2, "0, 1"), (7, "0, 1, 2, …")])
    def test_a_module_with_several_calls(self, times: int, numbers: str) -> None:
        repeated = Twice(Attention(), times)
        with regard.watch(repeated) as seen:
            repeated(inputs())
        rule = rf"inner made {times} calls \({numbers}\): choose one by number, or .*stitched"
        with pytest.raises(KeyError, match=rule):
            seen["inner"]


WHERE: dict[str, tuple[Any, Callable[[int, str], bool]]] = {
    "path": ("layers.1.self_attn", lambda layer, part: layer == 1 and part == "self_attn"),
    "all below": ("layers.1", lambda layer, part: layer == 1),
    "wildcard": ("*.cross_attn", lambda layer, part: part == "cross_attn"),
    "wildcard of numbers": ("layers.1?", lambda layer, part: layer >= 10),
    "list": (
        ["layers.0", "layers.11.self_attn"],
        lambda layer, part: layer == 0 or (layer == 11 and part == "self_attn"),
    ),
    "number": (3, lambda layer, part: layer == 3),
    "numbers": (iter([3, 10]), lambda layer, part: layer in (3, 10)),
    "numbers and paths": ([3, "*.1.self_attn"], lambda layer, part: (layer, part) in
        [(3, "self_attn"), (3, "cross_attn"), (1, "self_attn")]),
    "rule": (
        lambda name, module: isinstance(module, Attention) and name.endswith("7.self_attn"),
        lambda layer, part: layer == 7 and part == "self_attn",
    ),
}  # fmt: skip


class TestWhere:
    @pytest.mark.parametrize("name", WHERE)
    def test_modules_are_chosen(self, name: str, model: Model) -> None:
        where, expected = WHERE[name]
        with regard.watch(model, where=where) as seen, torch.no_grad():
            model(inputs())
        parts = ("self_attn", "cross_attn")
        assert [call.module for call in seen] == [
            f"layers.{layer}.{part}"
            for layer in range(NUM_LAYERS)
            for part in parts
            if expected(layer, part)
        ]
        assert [call.index for call in seen] == list(range(len(seen)))

    @pytest.mark.parametrize("where", [3.5, True, ["layers", 1.0], [None]])
    def test_what_names_no_module(self, where: Any, model: Model) -> None:
        rule = r"^where must be a module's path, a layer's number, a list of these, or a function "
        with pytest.raises(TypeError, match=rule), regard.watch(model, where=where):
            pass

    @pytest.mark.parametrize("where", ["layer.1", "self_attn", 12, [], [12, "x"], lambda *_: False])
    def test_nothing_is_named(self, where: Any, model: Model) -> None:
        rule = r"^where must match a module of the model, got .*; some are \['layers', 'layers.0', "
        with pytest.raises(ValueError, match=rule), regard.watch(model, where=where):
            pytest.fail("the block was entered")

    def test_nothing_is_named_in_a_flat_model(self) -> None:
        flat = nn.ModuleDict({"query": nn.Linear(2, 2), "key": nn.Linear(2, 2)})
        rule = r"match a module of the model, got .*; some are \['query', 'key'\]$"
        with pytest.raises(ValueError, match=rule), regard.watch(flat, where="value"):
            pytest.fail("the block was entered")
        rule = (
            r"where must match a module of the model, got .*; it has no children: leave where out$"
        )
        with pytest.raises(ValueError, match=rule), regard.watch(nn.Identity(), where="value"):
            pytest.fail("the block was entered")


class TestNothing:
    def test_no_attention(self) -> None:
        linear = nn.Linear(2, 2)
        with pytest.raises(RuntimeError) as raised, regard.watch(linear) as seen:
            linear(torch.ones(1, 2))
        message = str(raised.value)
        assert message.startswith("no attention was seen. Likely reasons:\n- ")
        assert message.count("\n- ") >= 4
        assert 'set_attn_implementation("sdpa")' in message
        assert len(seen) == 0

    def test_nothing_was_called(self) -> None:
        rule = r"not called inside the block"
        with pytest.raises(RuntimeError, match=rule), regard.watch(Attention()):
            pass

    def test_errors_of_the_block_come_through(self) -> None:
        with pytest.raises(ZeroDivisionError), regard.watch(Attention()):
            _ = 1 / 0

    def test_requests_are_those_of_an_engine(self) -> None:
        rule = r"^requests must be None unless model is a vllm\.LLM$"
        with pytest.raises(ValueError, match=rule):
            regard.watch(Attention(), requests=lambda name: True)

    @pytest.mark.usefixtures("unchecked")
    def test_no_module(self) -> None:
        rule = r"^model must be a torch.nn.Module, got str; load it first$"
        with pytest.raises(TypeError, match=rule), regard.watch("./minilm"):
            pass
        rule = r"^model must be a torch.nn.Module, got int$"
        with pytest.raises(TypeError, match=rule), regard.watch(3):
            pass
        pipeline = SimpleNamespace(model=Attention())
        rule = r"^model must be a torch.nn.Module, got SimpleNamespace; use its \.model$"
        with pytest.raises(TypeError, match=rule), regard.watch(pipeline):
            pass


class TestWhose:
    def test_calls_of_other_models_are_not_seen(self) -> None:
        mine, other = Attention(), Attention()
        llama, stranger = made(ZOO["Llama"]), made(ZOO["Llama"])
        holder = nn.ModuleList([mine, llama])
        x = random(1, 1, 3, 4)
        with regard.watch(holder) as seen, torch.no_grad():
            other(inputs())
            stranger(**ZOO["Llama"].inputs("none"))
            F.scaled_dot_product_attention(x, x, x)
            mine(inputs())
            other(inputs())
            llama(**ZOO["Llama"].inputs("none"))
            stranger(**ZOO["Llama"].inputs("none"))
        assert [call.module for call in seen] == [
            "0", "1.layers.0.self_attn", "1.layers.1.self_attn",
        ]  # fmt: skip

    @pytest.mark.parametrize("path", ["layers.1", "layers.1.self_attn"])
    def test_a_part_alone(self, path: str, model: Model) -> None:
        part = model.get_submodule(path)
        with regard.watch(part) as seen, torch.no_grad():
            model(inputs())
        with regard.watch(model, where=path) as whole, torch.no_grad():
            model(inputs())
        assert [f"{path}.{call.module}".rstrip(".") for call in seen] == [
            call.module for call in whole
        ]
        for call, other in zip(seen, whole, strict=True):
            assert torch.equal(call.matrix.dense(), other.matrix.dense())
        if path == "layers.1.self_attn":
            assert rows(seen)[1][1] == "(the model)"
            assert str(seen[0]) == "call 0 (the model)"
            assert seen[""] is seen[0]

    @pytest.mark.parametrize("name", ["Llama", "BERT", "T5", "BLOOM"])
    def test_outputs_are_the_same(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind).train()

        def run() -> Tensor:
            torch.manual_seed(1)
            return model(**kind.inputs("left"))[0]

        expected = run()
        for options in ({}, {"keep": "copies"}, {"keep": [Entropy()]}, {"check": False}):
            with regard.watch(model, **options):
                assert torch.equal(run(), expected)


def test_a_module_of_transformers_whose_forward_is_called() -> None:
    model: Any = made(ZOO["Llama"])
    layer, hidden = model.layers[0].self_attn, random(1, 5, model.config.hidden_size)
    rotated = model.rotary_emb(hidden, torch.arange(5)[None])
    with torch.no_grad(), regard.watch(model) as seen:
        layer.forward(hidden, position_embeddings=rotated, attention_mask=None)
        with regard.watch(model) as called:
            layer(hidden, position_embeddings=rotated, attention_mask=None)
    seen.verify()
    assert [call.module for call in seen] == ["layers.0.self_attn"] * 2
    assert torch.equal(seen[0].matrix.dense(), called[0].matrix.dense())
