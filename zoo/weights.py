"""Weights so strong that attention is far from uniform."""

import torch
from torch import Tensor, nn

_KEPT = ("A_log", "dt_", "inv_freq", "freqs")
"""What state-space layers and rotations have learned is not to be drawn anew."""


@torch.no_grad()
def strengthen(model: nn.Module, gain: float = 1.5) -> None:
    """Draw or scale all weights so that what they do is noticed.

    Args:
        model: the model.
        gain: how much larger than its input a linear layer's output is.
    """
    chance = torch.Generator().manual_seed(11)
    done: set[int] = set()
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in done or not parameter.is_floating_point():
                continue
            done.add(id(parameter))
            if any(kept in f"{path}.{name}" for kept in _KEPT) or not parameter.numel():
                continue
            _strengthen(module, name, parameter, gain, chance)
    for _, buffer in model.named_buffers():
        # Statistics of images that nobody has seen.
        if buffer.is_floating_point() and not buffer.isfinite().all():
            buffer.masked_fill_(buffer.isnan(), 0.0)


def _strengthen(
    module: nn.Module, name: str, parameter: Tensor, gain: float, chance: torch.Generator
) -> None:
    def drawn() -> Tensor:
        return torch.randn(parameter.shape, generator=chance, dtype=torch.float32)

    if not parameter.isfinite().all():
        # Memory that nothing was written to.
        parameter.zero_()
    size = float(parameter.float().pow(2).mean().sqrt())
    spread = float(parameter.float().std()) if parameter.numel() > 1 else 0.0
    constant = spread < 1e-6
    if isinstance(module, nn.Embedding):
        parameter.copy_(drawn())
    elif (parameter.dim() >= 2 and name in ("weight", "in_proj_weight")) or parameter.dim() >= 3:
        fan_in = parameter[0].numel() if parameter.dim() == 2 or name == "weight" else 0
        fan_in = fan_in or max(parameter.shape[1:])
        wanted = gain / fan_in**0.5
        parameter.copy_(drawn() * wanted if constant else parameter * (wanted / size))
    elif parameter.dim() == 2:
        parameter.copy_(drawn() * 0.5 if constant else parameter * max(1.0, 0.5 / size))
    elif "bias" in name:
        parameter.add_(drawn() * 0.1)
    elif constant and abs(size) < 0.5:
        # Sinks, gates that start closed, and layers that start as nothing.
        parameter.copy_(drawn() * 0.5 + 0.5)
