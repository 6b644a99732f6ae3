"""Read the product of weights and values from a call of any function that multiplies.

Models write A @ V in many ways. Each becomes a `Product`, whose last axes are [queries, keys] for
the weights, [keys, dim] for the values and [queries, dim] for the output:

    weights @ value                        as it is; also bmm, mm, matmul
    value.mT @ weights.mT                  the weights are the second operand: all are transposed
    F.linear(weights, value.mT, bias)      its second operand is transposed; the bias is subtracted
    torch.baddbmm(added, weights, value)   the first operand is subtracted from the output
    torch.einsum("bhqk,bkhd->bqhd", …)     axes by their letters; see `_read_einsum`
    (weights[..., None] * value).sum(-2)   `read_sum`

The product must sum over the keys, which is the axis of the softmax. But between softmax and
product, weights are transposed, sliced, split, reshaped. So each of these functions also runs on a
probe: a tensor of the same shape without memory, on torch's meta device, whose strides mark the key
axis. A stride is the step in memory between neighbours along an axis. The keys have stride 1, all
others multiples of M = 2²⁴, more than there are keys. For weights [2, 3, 5], with keys on the last
axis:

                            shape         strides
    probe                   [2, 3, 5]     (3M, M, 1)
    .transpose(1, 2)        [2, 5, 3]     (3M, 1, M)       the keys are on axis 1
    [:, 1:, ::2]            [2, 2, 3]     (3M, M, 2)       on axis 2, every other one
    .flatten(0, 1)          [6, 5]        (M, 1)           on axis 1

Views add strides or multiply them by steps below the size of their axis. So the stride of keys is
never a multiple of M, and that of another axis always is. Shapes alone don't tell: queries and keys
are usually as many. A function that needs new memory, such as one that merges the keys with another
axis, returns no view of the probe; then it is lost, and the key axis unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

_MATMUL = {
    torch.bmm,
    torch.linalg.matmul,
    torch.matmul,
    torch.mm,
    Tensor.__matmul__,
    Tensor.bmm,
    Tensor.matmul,
    Tensor.mm,
}
_REVERSED = {Tensor.__rmatmul__}
_ADDS = {torch.addmm, torch.baddbmm, Tensor.addmm, Tensor.baddbmm}

PRODUCTS = _MATMUL | _REVERSED | _ADDS | {torch.einsum, F.linear}
"""The functions that multiply two tensors."""

_NAMES = ("input", "self", "other", "mat1", "mat2", "batch1", "batch2", "tensor", "weight")
"""The names of their operands, in the order of their signatures."""

MULTIPLIED_AGAIN = "its weights are multiplied with values more than once"

_APART = 1 << 24
"""Factor on the strides of a probe, except that of keys; more than a softmax has keys."""


@dataclass(frozen=True, eq=False)
class ChangedScores:
    """Scores of which some were masked or shifted before their softmax.

    Attributes:
        scores: the scores, −inf for masked pairs; arbitrary in the rows of `empty`.
        pairs: the pairs that were to be changed.
        shape: the shape of the scores with named axes, [batch, heads, queries, keys].
        strides: its strides in the memory of the scores.
        empty: the rows without pairs, whose weights must be 0, if any.
        masked: the pairs that were masked, if any.
    """

    scores: Tensor
    pairs: Bool[Tensor, "..."]
    shape: Sequence[int]
    strides: Sequence[int]
    empty: Bool[Tensor, "..."] | None = None
    masked: Bool[Tensor, "..."] | None = None

    def named(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the shape of the scores with named axes."""
        return tensor.contiguous().as_strided(self.shape, self.strides)

    def softmax(self) -> Tensor:
        """Return the softmax of the scores, 0 for NaN."""
        exact = self.scores.detach().to(torch.promote_types(self.scores.dtype, torch.float32))
        weights = exact.softmax(dim=-1).nan_to_num(0.0)
        return weights if self.empty is None else weights.masked_fill(self.empty, 0.0)


class WeightMask(NamedTuple):
    """The mask of weights.

    Attributes:
        masked: the pairs that were masked before the softmax; None if there are none.
        zeroed: whether a function may have masked others after it, by weights of 0. It may also
            have selected keys, such as the top ones.
    """

    masked: Bool[Tensor, "... queries keys"] | None
    zeroed: bool = False


@dataclass(frozen=True, eq=False)
class Product:
    """A product of weights and values.

    Attributes:
        weights: the weights; or marks in their place, if `read` was given some.
        value: the values, which broadcast over the first axes.
        output: the product.
        dropped: whether dropout was applied to the weights.
        view: the result of the function, laid out as `output`: its numbers are those of `output`
            and, with `baddbmm`, of the added tensor. None if it is a multiple of these.
        softmax_shape: the shape of the softmax, if known.
        in_order: whether the weights have the leading axes of the softmax, or these flattened.
        result: the result of the function for the model.
        original: the same before it was altered; `output` has its numbers.
        read: reads another result of the same function, with other weights, or marks, if given.
        masked_scores: the scores of each softmax, as each listener that masks pairs has left them.
        softmaxes: identifies the softmaxes of the weights.
        changed: whether the weights are another tensor than the result of one softmax.
        again: whether the same weights were multiplied before.
        mask: the mask of the weights; None if it is unknown.
        operands: queries and keys; see `ScoreMask`.
    """

    weights: Float[Tensor, "... queries keys"] | Bool[Tensor, "... queries keys"]
    value: Float[Tensor, "... keys dim"]
    output: Float[Tensor, "... queries dim"]
    dropped: bool
    view: Float[Tensor, "... queries dim"] | None = None
    softmax_shape: Sequence[int] | None = None
    in_order: bool = False
    result: Tensor | None = None
    original: Tensor | None = None
    read: "Callable[[Tensor, Tensor | None], Product | None] | None" = None
    masked_scores: "Sequence[Mapping[object, ChangedScores]]" = ()
    softmaxes: frozenset[object] = frozenset()
    changed: bool = False
    again: bool = False
    mask: "WeightMask | None" = None
    operands: Sequence[Tensor] = ()

    def is_of_shares(self) -> bool:
        """Return whether each row of the weights sums to 1 or is 0, and some weight is fractional.

        Decays of state-space layers are exponentials too: 1 for the same step, near 0 for old ones.
        """
        rounding = 2 * self.weights.shape[-1] * torch.finfo(self.weights.dtype).eps
        sums = self.weights.float().sum(dim=-1)
        of_shares = ((sums - 1).abs() <= max(rounding, 1e-5)) | (sums == 0)
        whole = self.weights.shape[-1] > 1 and (self.weights.amax(dim=-1) == 1).all()
        return bool(of_shares.all() and not whole)


def operands(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> list[Tensor]:
    """Return the operands of a product, in the order of its formula."""
    all_arguments = [*arguments, *(options[name] for name in _NAMES if name in options)]
    if function is torch.einsum:
        # Operands in a list, or one by one.
        flat: list[Any] = []
        for x in all_arguments[1:]:
            flat += x if isinstance(x, list | tuple) else [x]
        return [x for x in flat if isinstance(x, Tensor)]
    tensors = [x for x in all_arguments if isinstance(x, Tensor)]
    if function in _ADDS:
        tensors = tensors[1:]
    if function in _REVERSED:
        tensors = tensors[::-1]
    return tensors[:2]


def queries_and_keys(
    function: Any, arguments: Sequence[Any], options: Mapping[str, Any]
) -> list[Tensor]:
    """Return the operands of a product that may be scores, the keys as [..., keys, key_dim].

    The keys are those that differ along the last axis of the result.
    """
    factors = operands(function, arguments, options)
    if len(factors) != 2 or function is F.linear:
        # The second operand of `linear` is transposed.
        return factors
    if function is not torch.einsum:
        return [factors[0], factors[1].mT] if factors[1].dim() > 1 else factors

    equation = arguments[0] if arguments else options["equation"]
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return factors
    inputs, result = equation.replace(" ", "").split("->")
    first, second = inputs.split(",")
    if (result[-1] in second) == (result[-1] in first) or {*first} >= {*second} <= {*result}:
        return factors
    if len({*first}) < len(first) or len({*second}) < len(second):
        # Of a diagonal.
        return factors
    if result[-1] in first:
        first, second, factors = second, first, factors[::-1]

    # The axes in the order of the result, then those that are summed over.
    leading = [letter for letter in result[:-1] if letter in second]
    summed = [letter for letter in second if letter not in result]
    key = factors[1].permute([second.index(x) for x in (*leading, result[-1], *summed)])
    return [factors[0], key.flatten(len(leading) + 1) if summed else key.unsqueeze(-1)]


def key_of(
    operands: Sequence[Tensor], num_keys: int
) -> Float[Tensor, "*leading keys key_dim"] | None:
    """Return the keys of scores, if it is plain which operand of their product has them.

    Where scores of as many queries as keys were transposed, these are the queries, which have the
    same order of sequences and heads.
    """
    if len(operands) != 2:
        return None
    candidates = [x.detach() for x in reversed(operands) if x.dim() > 1]
    return next((x for x in candidates if x.shape[-2] == num_keys), None)


def read_product(
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    result: Tensor,
    weights: Tensor,
    clean: Tensor | None,
    probe: Tensor | None,
) -> Product | None:
    """Read the product of weights and values from a call of a function.

    Args:
        function: one of `PRODUCTS`.
        arguments: its positional arguments.
        options: its keyword arguments.
        result: its result.
        weights: the operand that is weights.
        clean: the weights without dropout, if there was any.
        probe: marks the key axis, if known; see `probe_of`.

    Returns:
        The product; None if it does not sum over the keys, or is of another kind.
    """
    factors = operands(function, arguments, options)
    if len(factors) != 2:
        return None
    is_second = factors[1] is weights
    value = factors[0 if is_second else 1]
    dropped = clean is not None
    weights = weights if clean is None else clean
    if function is torch.einsum:
        equation = arguments[0] if arguments else options["equation"]
        if not isinstance(equation, str):
            return None
        return _read_einsum(equation, is_second, weights, value, result, probe, dropped)

    # Subtract the terms that are added.
    output, view = result, result
    if function in _ADDS:
        # With a beta of 0, the added tensor may be uninitialised.
        if beta := options.get("beta", 1):
            added = next(x for x in (*arguments, *options.values()) if isinstance(x, Tensor))
            output = result - beta * added
        if options.get("alpha", 1) not in (0, 1):
            output, view = output / options["alpha"], None
    if function is F.linear:
        # Its second operand is transposed, and there may be a bias.
        bias = options.get("bias", arguments[2] if len(arguments) > 2 else None)
        output = result if bias is None else result - bias
        if is_second:
            weights, probe = weights.mT, None if probe is None else probe.mT
        else:
            value = value.mT
    return _read_matmul(is_second, weights, value, output, view, probe, dropped)


def _read_matmul(
    is_second: bool,
    weights: Tensor,
    value: Tensor,
    output: Tensor,
    view: Tensor | None,
    probe: Tensor | None,
    dropped: bool,
) -> Product | None:
    """Read a product of matrices, of which the weights are the first or the second."""
    if min(weights.dim(), value.dim()) < 1 or weights.dim() < 2:
        return None
    if not _is_key_axis(probe, -2 if is_second else -1):
        return None
    has_rows = value.dim() > 1
    if not has_rows:
        # One value per key.
        value = value[None] if is_second else value[:, None]

    def arranged(result: Tensor) -> Tensor:
        if not has_rows:
            result = result[..., None, :] if is_second else result[..., None]
        return result.mT if is_second else result

    if is_second:
        weights, value = weights.mT, value.mT
    view = None if view is None else arranged(view)
    return Product(weights, value, arranged(output), dropped, view)


def _read_einsum(
    equation: str,
    is_second: bool,
    weights: Tensor,
    value: Tensor,
    result: Tensor,
    probe: Tensor | None,
    dropped: bool,
) -> Product | None:
    """Read a product from the letters of its axes.

    The tensors that have a letter determine its axis. In "bhqk,bkhd->bqhd":

        k       weights, values              keys
        q       weights,          output     queries
        d                values,  output     features
        b, h    weights, values,  output     leading axes

    Several letters of a kind are flattened to one axis, except leading ones. If all heads share
    values, weights and output have two letters that values lack: first that of the heads.
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if not arrow or len(inputs) != 2 or ("..." in equation and "..." not in out):
        return None
    w = _spelled(inputs[is_second], weights.dim())
    v = _spelled(inputs[not is_second], value.dim())
    o = _spelled(out, result.dim())
    if any(len(set(letters)) < len(letters) for letters in (w, v, o)):
        return None

    keys = [x for x in w if x in v and x not in o]
    queries = [x for x in w if x in o and x not in v]
    shared = [x for x in o if x in w and x in v]
    heads = queries[:1] if len(queries) == 2 and len(shared) < 2 else []
    queries = queries[len(heads) :]
    features = [x for x in v if x in o and x not in w]
    if not keys or {*w, *v, *o} - {*keys, *heads, *queries, *shared, *features}:
        return None
    if len(keys) == 1 and not _is_key_axis(probe, w.index(keys[0])):
        return None

    def arranged(tensor: Tensor, letters: list[str], *groups: list[str]) -> Tensor:
        """Return a tensor with leading axes, of size 1 where it has none, and one per group."""
        leading = [*shared, *(x for x in heads if x in letters)]
        order = [letters.index(x) for group in (leading, *groups) for x in group]
        sizes = [tensor.shape[letters.index(x)] for x in leading]
        sizes += [1] * (len(shared) + len(heads) - len(leading))
        sizes += [prod(tensor.shape[letters.index(x)] for x in group) for group in groups]
        return tensor.permute(order).reshape(sizes)

    output = arranged(result, o, queries, features)
    weights, value = arranged(weights, w, queries, keys), arranged(value, v, keys, features)
    return Product(weights, value, output, dropped, output)


def _spelled(letters: str, num_axes: int) -> list[str]:
    """Return a letter for each axis; those of an ellipsis are numbered from the right."""
    if "..." not in letters:
        return list(letters)
    before, _, after = letters.partition("...")
    missing = num_axes - len(before) - len(after)
    return [*before, *(str(-number) for number in range(missing, 0, -1)), *after]


def read_sum(
    weights: Tensor,
    value: Tensor,
    product: Tensor,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    result: Tensor,
) -> Product | None:
    """Read an elementwise product of weights and values that was summed over the keys.

    Args:
        weights: [..., keys, 1].
        value: the values, which broadcast to [..., keys, dim].
        product: the product, [..., keys, dim].
        arguments: the positional arguments of the sum.
        options: its keyword arguments.
        result: the sum, [..., dim].
    """
    axis = options.get("dim", arguments[1] if len(arguments) > 1 else None)
    keepdim = options.get("keepdim", arguments[2] if len(arguments) > 2 else False)
    axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
    if not isinstance(axis, int) or axis % product.dim() != product.dim() - 2:
        return None
    rows = weights.expand(*product.shape[:-1], 1).squeeze(-1)
    output = result.squeeze(-2) if keepdim else result
    value = value[(None,) * (product.dim() - value.dim())]
    if product.dim() > 2 and value.shape[-3] == 1 < product.shape[-3]:
        # All rows share values, so they are queries.
        return Product(rows, value.squeeze(-3), output, dropped=False, view=output)
    output = output[..., None, :]
    return Product(rows[..., None, :], value, output, dropped=False, view=output)


def _is_key_axis(probe: Tensor | None, axis: int) -> bool:
    """Return whether an axis may be that of the keys: any may without a probe, or of size 1."""
    return probe is None or probe.shape[axis] == 1 or probe.stride(axis) % _APART != 0


def probe_of(shape: Sequence[int], key_axis: int) -> Tensor:
    """Return a probe: a tensor without memory whose strides mark the key axis; see the module."""
    sizes = list(shape)
    num_keys = sizes.pop(key_axis)
    others = torch.empty(sizes, device="meta").stride()
    strides = [*(_APART * step for step in others), 1]
    probe = torch.empty_strided([*sizes, num_keys], strides, device="meta")
    return probe.movedim(-1, key_axis)
