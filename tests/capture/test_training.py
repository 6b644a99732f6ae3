"""Watching does not change training: gradients, checkpoints, inference."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.matrix.scores import Scores
from tests.capture.calls import Kernel
from tests.capture.traces import inputs, same, stack
from tests.capture.zoo import ZOO, made
from tests.checkpointing import checkpointed

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "no_trace")


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
        checkpointed(model, use_reentrant=reentrant)
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
            if isinstance(call.source, Scores):
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
