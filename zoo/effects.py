"""Norms, effects and ablations, held against hooks and gradients of plain PyTorch."""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import regard
import regard.effects
from regard.calls import AttentionCall
from zoo.compare import OUTPUTS_WITHIN, output_gap, tensors_in

Run = Callable[[], Any]
Gradients = dict[tuple[str, int], Tensor]
"""Of the n-th output of a module, by its path."""


def faults(model: nn.Module, run: Run) -> list[str]:
    """Return what is wrong with the norms, effects and ablations of a model.

    What is refused is not wrong.

    Args:
        model: the model.
        run: runs it, and returns its output.
    """

    def target() -> Tensor:
        return _target(run())

    with torch.enable_grad():
        try:
            target().backward()
        except Exception:  # noqa: BLE001
            # It can't be differentiated.
            return []
        try:
            with (
                _gradients_of_linear_layers(model) as gradients,
                regard.watch(model, values=True, effects=True) as seen,
            ):
                target().backward()
        except RuntimeError as error:
            return [] if str(error).startswith("no attention was seen") else [f"raised {error}"]
        finally:
            model.zero_grad(set_to_none=True)
        found = _effects(seen, gradients, model) + _heads(seen, model, target)
    with torch.no_grad():
        return found + _ablation(seen, model, run)


def _target(output: Any) -> Tensor:
    """Return a number that depends on all of an output, differently on each part of it."""
    total = torch.zeros((), dtype=torch.float64)
    for number, (_, tensor) in enumerate(tensors_in(output)):
        if tensor.requires_grad:
            chance = torch.Generator().manual_seed(number)
            total = total + (tensor * torch.randn(tensor.shape, generator=chance)).double().sum()
    return total


@contextmanager
def _gradients_of_linear_layers(model: nn.Module) -> Generator[Gradients]:
    found: Gradients = {}
    counts: Counter[str] = Counter()

    def follow(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            place = (path, counts[path])
            counts[path] += 1
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(lambda grad: found.update({place: grad}))

        return hook

    hooks = [
        module.register_forward_hook(follow(path))
        for path, module in model.named_modules()
        if _weight(module) is not None
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _weight(module: nn.Module) -> Tensor | None:
    """Return the matrix of a linear layer, [inputs, outputs]."""
    if isinstance(module, nn.Linear):
        return module.weight.detach().T
    return module.weight.detach() if type(module).__name__ == "Conv1D" else None  # pyright: ignore[reportCallIssue]


def _effects(seen: Sequence[AttentionCall], gradients: Gradients, model: nn.Module) -> list[str]:
    """Compare norms with the definition, and gradients with those of the output projection.

    These agree if the output of a call goes through its projection only.
    """
    found: list[str] = []
    counts: Counter[str] = Counter()
    for call in seen:
        if call.projection is None or call.problem:
            continue
        path = call.projection.module
        weight = _weight(model.get_submodule(path))
        assert weight is not None
        gradient = gradients.get((path, counts[path]))
        counts[path] += 1
        value = call.value.repeat_interleave(call.heads // call.value.shape[1], dim=1)
        brought = value @ weight.view(call.heads, -1, weight.shape[1])
        norms = call.matrix.dense() * brought.norm(dim=-1)[:, :, None]
        if _gap(call.norms.dense(), norms) > OUTPUTS_WITHIN:
            found.append(f"norms of {call} differ from the definition")
        mine = None if call.gradient is None else call.gradient.total
        if mine is None or gradient is None:
            continue
        batch, heads, queries, dim = mine.shape
        through = (gradient @ weight.T).reshape(batch, queries, heads, dim).transpose(1, 2)
        if _gap(mine, through) > OUTPUTS_WITHIN:
            found.append(f"the output of {call} does not go through {path} only")
    return found


def _heads(seen: Any, model: nn.Module, target: Callable[[], Tensor]) -> list[str]:
    """Compare effects of heads: by gradients of outputs, and by those of factors on them."""
    try:
        mine, theirs = seen.effects.heads().effects, regard.effects.heads(model, target).effects
    except ValueError:
        return []
    if mine.shape == theirs.shape and _gap(mine.nan_to_num(), theirs.nan_to_num()) < OUTPUTS_WITHIN:
        return []
    return ["effects of heads differ"]


def _ablation(seen: Sequence[AttentionCall], model: nn.Module, run: Run) -> list[str]:
    """Compare the last head of the first layer, ablated, with zeros for its projection."""
    modules = Counter(call.module for call in seen)
    for call in seen:
        if call.projection is None or call.problem or modules[call.module] > 1:
            continue
        projection, head = model.get_submodule(call.projection.module), call.heads - 1
        if isinstance(model.get_submodule(call.module), nn.MultiheadAttention):
            continue

        def without(module: nn.Module, given: tuple[Any, ...], last: int = head) -> tuple[Any, ...]:
            size = given[0].shape[-1] // (last + 1)
            return (torch.cat([given[0][..., : last * size], 0 * given[0][..., -size:]], dim=-1),)

        try:
            with regard.ablate(model, heads=[(call.module, head)]):
                ablated = run()
        except ValueError:
            return []
        hook = projection.register_forward_pre_hook(without)
        expected = run()
        hook.remove()
        if output_gap(ablated, expected, ()) > OUTPUTS_WITHIN:
            return [f"head {head} of {call}, ablated, differs from zeros for its projection"]
        return []
    return []


def _gap(found: Tensor, exact: Tensor) -> float:
    """Return the largest difference, relative to the largest number."""
    if not exact.numel():
        return 0.0
    return float((found - exact).abs().max() / exact.abs().max().clamp(min=1e-6))
