"""The effect of each head on a target, by gradients or by ablation.

The effect is how much the target t falls if the head's output o is replaced by 0:

    "exact"        t(o) − t(0), one run per head
    "gradient"     g·o with g = ∂t/∂o, the tangent at o: one run and one backward pass for all heads
    "integrated"   g·o with g taken at ¾ o, where the outputs of one layer are scaled together: one
                   run and one backward pass per layer

With a factor c on each head's output, g·o is ∂t/∂c at c = 1 (`scaling`), so that no output needs to
be kept. "exact" and "integrated" run the model from the changed layer on (`reuse`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.calls.call import layer_names
from regard.calls.outputs import HeadEffects, How, by_layer
from regard.capture.where import check_model
from regard.interventions.ablate import ablate
from regard.interventions.layers import Layer
from regard.interventions.reuse import Reuse
from regard.interventions.scaling import Scaling
from regard.progress import progressing

_SCALED = 0.75
"""The factor on the outputs of a layer for "integrated": the midpoint between whole and halved.

All heads of the layer are scaled together, but only one is ablated. So smaller factors predict
worse; chosen by the ranking of heads on two targets of `benchmarks/effects.py`.
"""

Run = Callable[[], Tensor]
"""Runs a model, and returns a target: one number, such as the difference of two logits."""


def heads(
    model: nn.Module,
    run: Run,
    *,
    how: How = "gradient",
    only: Iterable[tuple[Layer, int]] | None = None,
    progress: bool | None = None,
) -> HeadEffects:
    """Return the effect of each head on a target: how much it falls without the head's output.

        def run():
            logits = model(**inputs).logits[0, -1]
            return logits[paris] - logits[rome]

        regard.interventions.heads(model, run)                # one forward and backward pass
        regard.interventions.heads(model, run, how="exact")   # one run per head, from its layer

    Args:
        model: any model that `ablate` can alter.
        run: runs the model, and returns a number that depends on it.
        how: "gradient" extrapolates linearly; "integrated" takes the gradients of one run for each
            layer, with the layer's outputs at three quarters, halfway from whole to halved; "exact"
            sets the output of one head after the other to zero.
        only: with "exact", the heads to ablate, each as (layer, head); all by default.
        progress: whether to show a progress bar. By default one is shown in terminals and notebooks
            if it takes longer than two seconds, if rich is installed.

    Raises:
        TypeError: model is no module, or run returns no tensor.
        ValueError: how is unknown, run returns several numbers, another each time or one that does
            not depend on attention, or a call can't be altered.
    """
    check_model(model)
    if how not in get_args(How):
        raise ValueError(f"how must be 'gradient', 'integrated' or 'exact', got {how!r}")
    if only is not None and how != "exact":
        raise ValueError(f'only is for how="exact", got how={how!r}')
    if how == "exact":
        return _exact(model, run, only, progress)
    if how == "gradient":
        return _named(_gradients(model, run), how)

    modules, reuse = list(_num_heads(model, run)), _reuse(model, run)
    rows: dict[str, Float[Tensor, "some_heads"]] = {}
    for module in progressing(modules, "layers", len(modules), progress):
        with reuse.before(module):
            rows |= _gradients(model, run, {module: _SCALED})
    return _named(rows, how)


def _num_heads(model: nn.Module, run: Run) -> dict[str, int]:
    """Return the number of heads of each module that calls attention, by its path."""
    with torch.no_grad(), Scaling(model) as scaling:
        _target(run)
    return {module: len(scale) for module, scale in scaling.scales.items()}


def _reuse(model: nn.Module, run: Run) -> Reuse:
    """Return the target of the unchanged model, with the outputs of its blocks for further runs."""
    with torch.no_grad():
        reuse = Reuse(model, lambda: _target(run))
        again = _target(run)
    if not torch.allclose(reuse.target, again, rtol=0.0, atol=0.0, equal_nan=True):
        raise ValueError(
            f"run must return the same number each time, got {reuse.target.item()} and "
            f"{again.item()}: call model.eval() first"
        )
    return reuse


def _gradients(
    model: nn.Module, run: Run, factors: Mapping[str, float] | None = None
) -> dict[str, Float[Tensor, "some_heads"]]:
    """Return g·o of each head, by the path of its module.

    Args:
        model: the model.
        run: runs it.
        factors: factors on the outputs of some modules; then only their heads are returned.
    """
    with torch.enable_grad(), Scaling(model, factors) as scaling:
        target = _target(run)
        scales = {module: scaling.scales[module] for module in factors or scaling.scales}
        if not target.requires_grad:
            raise ValueError(
                "run must return a number that depends on the model's attention, with gradients: "
                "leave torch.no_grad(), .detach() and .item() out"
            )
        gradients = torch.autograd.grad(target, list(scales.values()), materialize_grads=True)
    return dict(zip(scales, gradients, strict=True))


def _exact(
    model: nn.Module,
    run: Run,
    only: Iterable[tuple[Layer, int]] | None,
    progress: bool | None,
) -> HeadEffects:
    # 1. The heads to ablate.
    counts = _num_heads(model, run)
    names = layer_names(counts)
    modules = {name: module for module, name in names.items()}
    chosen = [(names[module], head) for module, count in counts.items() for head in range(count)]
    if only is not None:
        chosen = list(only)
        for layer, head in chosen:
            if layer not in modules or not 0 <= head < counts[modules[layer]]:
                raise ValueError(f"only: the model has no head {(layer, head)!r}")

    # 2. Their effects; NaN for heads that are not ablated.
    rows = {
        module: torch.full((count,), torch.nan, dtype=torch.float64)
        for module, count in counts.items()
    }
    reuse = _reuse(model, run)
    for layer, head in progressing(chosen, "heads", len(chosen), progress):
        module = modules[layer]
        with torch.no_grad(), reuse.before(module), ablate(model, heads=[(module, head)]):
            after = _target(run)
        rows[module][head] = reuse.target.double() - after.double()
    return _named(rows, "exact")


def _target(run: Run) -> Float[Tensor, ""]:
    target = run()
    if not isinstance(target, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"run must return a tensor of one number, got {type(target).__name__}")
    if target.numel() != 1:
        raise ValueError(f"run must return one number, got a tensor of shape {list(target.shape)}")
    return target.reshape(())


def _named(rows: Mapping[str, Float[Tensor, "some_heads"]], how: How) -> HeadEffects:
    names = layer_names(rows)
    return by_layer({names[module]: row.detach().cpu() for module, row in rows.items()}, how)
