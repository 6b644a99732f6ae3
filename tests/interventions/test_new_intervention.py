"""An intervention that the library does not have, to show how little a new one takes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.capture.call import Call
from regard.capture.listener import CallSite, Rank
from regard.interventions.intervention import Intervention
from regard.interventions.layers import Layers
from tests.capture.generating import writer
from tests.capture.traces import HEADS, LENGTH, WIDTH, inputs, random

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

HEAD, CONSTANT = 1, 0.5


class AddToHead(Intervention):
    """Adds a constant to the output of one head."""

    rank = Rank.ABLATE

    def __init__(self, model: nn.Module, layer: int | str, head: int, constant: float) -> None:
        super().__init__(model, Layers(model, [layer], "layer"))
        self.head, self.constant = head, constant

    def changed(self, site: CallSite, call: Call) -> Call:
        output = call.returned.clone()
        output[:, self.head] += self.constant
        return call.with_output(output)


class Attention(nn.Module):
    """Attention by a kernel or written down; the constant is added to the head if `added`."""

    num_heads = HEADS

    def __init__(self, *, fused: bool, added: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mixed, self.fused, self.added = nn.Linear(WIDTH, 3 * WIDTH), fused, added

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        if self.fused:
            output = F.scaled_dot_product_attention(query, key, value)
        else:
            output = (query @ key.mT / (WIDTH // HEADS) ** 0.5).softmax(dim=-1) @ value
        if self.added:
            constant = torch.zeros(HEADS, 1, 1)
            constant[HEAD] = CONSTANT
            output = output + constant
        return x + output.transpose(1, 2).flatten(2)


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("fused", [True, False])
class TestHandWritten:
    def test_with_watch(self, fused: bool) -> None:
        model = Attention(fused=fused)
        expected = Attention(fused=fused, added=True)(inputs())
        with regard.watch(model) as seen, AddToHead(model, "", HEAD, CONSTANT):
            output = model(inputs())
        torch.testing.assert_close(output, expected)
        # The weights are those of the model, whatever became of its output.
        seen.verify()
        with regard.watch(model) as plain:
            model(inputs())
        torch.testing.assert_close(seen[0].matrix.dense(), plain[0].matrix.dense())

    def test_after_ablation(self, fused: bool) -> None:
        model = Attention(fused=fused)
        with regard.ablate(model, [("", HEAD)]), AddToHead(model, "", HEAD, CONSTANT):
            output = model(inputs()) - inputs()
        heads = output.unflatten(-1, (HEADS, -1))
        torch.testing.assert_close(heads[:, :, HEAD], torch.full_like(heads[:, :, HEAD], CONSTANT))

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_under_checkpoints(self, fused: bool, reentrant: bool) -> None:
        gradients: list[Tensor] = []
        for added in (True, False):
            model = Checkpointed(Attention(fused=fused, added=added), reentrant=reentrant)
            x = random(2, LENGTH, WIDTH, seed=1).requires_grad_()
            if added:
                model(x).square().sum().backward()
            else:
                with AddToHead(model, "inner", HEAD, CONSTANT):
                    model(x).square().sum().backward()
            assert x.grad is not None
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_in_generate(kernel: str) -> None:
    model = writer("Llama", kernel)
    text = torch.tensor([[5, 7, 11, 13]])
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with AddToHead(model, 1, HEAD, 3.0):
        cached = model.generate(text, **options, use_cache=True)
        recomputed = model.generate(text, **options, use_cache=False)
    assert torch.equal(cached, recomputed)

    # The same by a hook on the projection of the layer's output, whose input has all heads.
    attention = model.model.layers[1].self_attn
    dim = attention.head_dim

    def add(module: nn.Module, arguments: tuple[Tensor]) -> tuple[Tensor]:
        (joined,) = arguments
        joined = joined.clone()
        joined[..., HEAD * dim : (HEAD + 1) * dim] += 3.0
        return (joined,)

    with attention.o_proj.register_forward_pre_hook(add):
        expected = model.generate(text, **options)
    assert torch.equal(cached, expected)
    assert not torch.equal(cached, model.generate(text, **options))
