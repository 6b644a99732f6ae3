"""Norms, effects and ablations, held against hooks and gradients of plain PyTorch.

Effects are compared with the gradients of scores: of a model with eager attention, those of the
tensors that it passes to a softmax,

    E[i, j] = ∂target / ∂scores[i, j]

The softmax of a call is recognised by its result, which must be the weights of the call.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import regard
import regard.interventions
from regard.calls import AttentionCall
from regard.versions import Overwritten
from zoo.compare import OUTPUTS_WITHIN, WITHIN, output_gap, tensors_in

Run = Callable[[], Any]
Gradients = dict[tuple[str, int], Tensor]
"""Of the n-th output of a module, by its path."""


class Softmax(NamedTuple):
    """A softmax that a model computed.

    Attributes:
        weights: its result.
        gradient: that of the target with respect to its scores.
    """

    weights: Tensor
    gradient: Tensor


class Found(NamedTuple):
    """Result of `faults`.

    Attributes:
        wrong: what is wrong.
        compared: the number of calls whose effects were compared with gradients of scores.
    """

    wrong: list[str]
    compared: int = 0


def softmaxes(model: nn.Module, run: Run, masks: Sequence[Tensor] = ()) -> list[Softmax]:
    """Return the softmaxes of a model with eager attention, with gradients of their scores.

    Arguments as for `faults`. A model that can't be differentiated has none.
    """
    mode = _Softmaxes()
    try:
        with torch.enable_grad(), mode:
            target = _target(run(), masks)
        target.backward()
    except Exception:  # noqa: BLE001
        return []
    finally:
        model.zero_grad(set_to_none=True)
    return [
        Softmax(weights.detach(), mode.gradients[number])
        for number, weights in enumerate(mode.weights)
        if number in mode.gradients
    ]


class _Softmaxes(TorchFunctionMode):
    """Keeps the result of each softmax and the gradient of its scores, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []
        self.gradients: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        if func not in (F.softmax, torch.softmax, Tensor.softmax):
            return func(*args, **options)
        scores = args[0] if args else options.pop("input")
        if not (isinstance(scores, Tensor) and scores.requires_grad):
            return func(*args, **(kwargs or {}))
        # Of a view of its own, so that a model may modify its scores and use them again.
        scores = scores.view_as(scores)
        number = len(self.weights)
        scores.register_hook(
            lambda gradient: self.gradients.update({number: gradient.detach().clone()})
        )
        result = func(scores, *args[1:], **options)
        self.weights.append(result)
        return result


def faults(
    model: nn.Module, run: Run, masks: Sequence[Tensor] = (), eager: Sequence[Softmax] = ()
) -> Found:
    """Return what is wrong with the norms, effects and ablations of a model.

    What is refused is not wrong.

    Args:
        model: the model.
        run: runs it, and returns its output.
        masks: which tokens are no padding, [batch, length]. Others are left out of the target and
            of outputs that are compared.
        eager: the softmaxes of the same model with eager attention.
    """

    def target() -> Tensor:
        return _target(run(), masks)

    with torch.enable_grad():
        try:
            target().backward()
        except Exception:  # noqa: BLE001
            # It can't be differentiated.
            return Found([])
        try:
            with (
                _gradients_of_linear_layers(model) as gradients,
                regard.watch(model, values=True, effects=True) as seen,
            ):
                target().backward()
        except RuntimeError as error:
            said = str(error)
            return Found([] if said.startswith("no attention was seen") else [f"raised {said}"])
        finally:
            model.zero_grad(set_to_none=True)
        wrong = _effects(seen, gradients, model) + _heads(seen, model, target)
        wrong_scores, compared = _scores(seen, eager)
    with torch.no_grad():
        return Found(wrong + wrong_scores + _ablation(seen, model, run, masks), compared)


def _target(output: Any, masks: Sequence[Tensor]) -> Tensor:
    """Return a number that depends on all of an output but padding, differently on each part."""
    total = torch.zeros((), dtype=torch.float64)
    for number, (path, tensor) in enumerate(tensors_in(output)):
        if tensor.requires_grad and "past_key_values" not in path:
            chance = torch.Generator().manual_seed(number)
            factors = torch.randn(tensor.shape, generator=chance)
            padded = _padded(tensor, masks)
            if padded is not None:
                factors = factors.masked_fill(padded, 0.0)
                tensor = tensor.masked_fill(padded, 0.0)
            total = total + (tensor * factors).double().sum()
    return total


def _padded(tensor: Tensor, masks: Sequence[Tensor]) -> Tensor | None:
    """Return where an output may be that of padding; broadcasts to it.

    A text may have got a few tokens more in the model, before it or behind it.
    """
    for real in masks:
        batch, length = real.shape
        more = tensor.shape[1] - length if tensor.dim() > 1 else -1
        if 0 <= more < 3 and tensor.shape[0] == batch:
            both = F.pad(real, (more, 0), value=1).bool() & F.pad(real, (0, more), value=1).bool()
            return ~both.view(*both.shape, *[1] * (tensor.dim() - 2))
    return None


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
        try:
            value = call.value.repeat_interleave(call.heads // call.value.shape[1], dim=1)
        except ValueError:
            # Of a call that is known by its weights alone.
            continue
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
        mine, theirs = (
            seen.effects.heads().effects,
            regard.interventions.heads(model, target).effects,
        )
    except (ValueError, Overwritten):
        return []
    if mine.shape == theirs.shape and _gap(mine.nan_to_num(), theirs.nan_to_num()) < OUTPUTS_WITHIN:
        return []
    return ["effects of heads differ"]


def _scores(seen: Sequence[AttentionCall], eager: Sequence[Softmax]) -> tuple[list[str], int]:
    """Compare effects with gradients of scores; return what differs, and the number compared."""
    found: list[str] = []
    compared = 0
    # Gradients that are zero but for rounding, as where all values are equal, have no size.
    size = max((float(softmax.gradient.abs().max()) for softmax in eager), default=0.0)
    for call in seen:
        if call.problem or not call.heads_known:
            continue
        try:
            effects, weights = call.effects.dense(), call.matrix.dense()
        except (ValueError, Overwritten):
            continue
        # Rows without keys are zeros here, and equal weights in eager attention.
        rows = (weights.sum(dim=-1) > 0.5)[..., None]
        gaps = [
            _gap(effects * rows, gradient * rows, max(1e-6, 1e-3 * size))
            for softmax in eager
            for theirs, gradient in [_like(softmax, weights)]
            if theirs is not None and float(((weights - theirs) * rows).abs().max()) < WITHIN
        ]
        compared += bool(gaps)
        if gaps and min(gaps) > OUTPUTS_WITHIN:
            found.append(f"effects of {call} differ from gradients of its scores")
    return found, compared


def _like(softmax: Softmax, weights: Tensor) -> tuple[Tensor | None, Tensor]:
    """Return the weights and gradients of a softmax in the shape of those of a call, or None."""
    theirs, gradient = softmax
    batch, heads, queries, keys = weights.shape
    if theirs.dim() < 2 or theirs.shape[-2] != queries:
        return None, gradient
    # A sink is one more key, the last one.
    has_sink = theirs.shape[-1] == keys + 1
    theirs, gradient = theirs[..., :keys], gradient[..., :keys]
    if theirs.numel() != weights.numel() or not (has_sink or theirs.shape[-1] == keys):
        return None, gradient
    shape = (batch, heads, queries, keys)
    return theirs.reshape(shape), gradient.reshape(shape)


def _ablation(
    seen: Sequence[AttentionCall], model: nn.Module, run: Run, masks: Sequence[Tensor]
) -> list[str]:
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
        if output_gap(ablated, expected, masks) > OUTPUTS_WITHIN:
            return [f"head {head} of {call}, ablated, differs from zeros for its projection"]
        return []
    return []


def _gap(found: Tensor, exact: Tensor, least: float = 1e-6) -> float:
    """Return the largest difference, relative to the largest number, which is at least `least`."""
    if not exact.numel():
        return 0.0
    return float((found - exact).abs().max() / exact.abs().max().clamp(min=least))
