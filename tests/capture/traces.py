"""Models that may fail while they are watched, and what watching could leave behind."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from transformers import AttentionInterface

from tests.capture.zoo import ZOO, made

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


def run_and_fail(model: nn.Module, given: dict[str, Any]) -> None:
    model(**given)
    raise Fault


PARTS = ("query", "key", "value")
