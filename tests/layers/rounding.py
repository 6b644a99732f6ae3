"""How far rounding may carry what a layer gives, gradients included.

Layers are sums of products of sums, one behind the other. A sum of n products is off by at most n
roundings, each a share ε of its largest partial sum, and what is built on it carries that on: the
lengths of the sums on the way from the input to a number add up. A gradient goes that way once
more, and both sides of a comparison are rounded: four times the way in all.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def assert_close(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, terms: int
) -> None:
    """Assert that results are equal up to rounding in the worse of the two dtypes.

    Args:
        found: tensors by name. The largest number among all of them says how large the terms are:
            some gradients are sums of such terms that cancel each other altogether.
        expected: what they should be.
        terms: the lengths of the sums on the way, added up.
    """
    assert found.keys() == expected.keys()
    dtypes = [tensor.dtype for results in (found, expected) for tensor in results.values()]
    share = 4 * terms * max(torch.finfo(dtype).eps for dtype in dtypes)
    size = max((float(x.detach().abs().max()) for x in expected.values() if x.numel()), default=0.0)
    for name, one in found.items():
        assert one.shape == expected[name].shape, name
        torch.testing.assert_close(
            one.double(),
            expected[name].double(),
            rtol=0,
            atol=share * size,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def with_gradients(
    output: Tensor, inputs: Mapping[str, Tensor], seed: int = 0
) -> dict[str, Tensor]:
    """Return an output, and the gradients that come from it to what it was made of, by name."""
    chance = torch.Generator().manual_seed(seed)
    grad = torch.randn(output.shape, generator=chance, dtype=torch.float64).to(output.dtype)
    found = torch.autograd.grad(output, list(inputs.values()), grad)
    return {"output": output.detach(), **dict(zip(inputs, found, strict=True))}


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return normal numbers, the same ones in every dtype up to rounding."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=chance, dtype=torch.float64).to(dtype)


@torch.no_grad()
def shuffle(module: nn.Module, seed: int = 0) -> None:
    """Give every parameter, biases too, numbers that are not what they started with."""
    chance = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        numbers = torch.randn(parameter.shape, generator=chance, dtype=torch.float64)
        parameter.copy_(numbers / parameter.shape[-1] ** 0.5)
