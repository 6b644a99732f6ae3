"""What was seen outlives its model, its weights and their types, and keeps no graph."""

import gc
import weakref

import pytest
import torch

import regard
from tests.capture.traces import inputs, llama, same, stack
from tests.capture.zoo import ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "no_trace")


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
            source = call.scores
            exact = regard.AttentionMatrix(
                call.query.float(),
                call.key.float(),
                pattern=source.call.pattern,
                bias=source.call.bias,
                scale=source.call.scale,
                positions=source.call.query_positions,
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
