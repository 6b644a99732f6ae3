"""The shares of heads, source tokens and MLPs in a logit: direct logit attribution.

The residual stream is a sum: of the embedding, and of what each attention and each MLP adds.
A logit is a row of the unembedding times the last norm of it, and linear once the scale of that
norm, a number, is frozen at its value in this run:

    logit = w · residual + c,      residual = embedding + Σ attention + Σ MLP
    w = unembedding row ∘ gain · scale, less its mean if the norm subtracts the mean

So each term has the share w · term, and attention splits further, into A[i, j] · v_j W_O · w of
each head and source token j.

No class of model is assumed. At the position of the logit, hooks keep what each module gets and
returns, and each equation is compared, to the rounding of float32:

1. Blocks are a chain: each gets what the one before it returned.
2. A block returns its input + its output projection + the output of one other module.
3. The logits are a linear layer of a norm of what the last block returned. Its scale is fitted.
4. All shares add up to the logit.

Anything else is refused. Cost: one run of the model, and one row of attention per head.
"""

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.calls.call import AttentionCall, layer_names
from regard.capture.module_stack import named_modules
from regard.capture.watch import watch
from regard.internals import without_torch_function
from regard.matrix.reduction import Result

_BLOCK = re.compile(r"^(?:.*?\.)?\d+(?=\.)")
"""The path of a numbered block at the beginning of that of a module."""

_NEAR = 1e-5
"""How much sums may differ, relative to their terms: some roundings of float32, in which many norms
are computed whatever the dtype of a model."""


@dataclass(frozen=True, eq=False, repr=False)
class LogitShares(Result):
    """The shares of a logit, or of the difference of two, in float64; together they are the logit.

    The scale of the last norm is frozen.

    Attributes:
        tokens: of a source token by a head, A[i, j] · v_j W_O · w; NaN for heads that a layer
            lacks.
        heads: of a head, the sum over all tokens.
        mlps: of the rest of a block, its MLP.
        biases: of the biases of the output projections.
        embedding: of the input of the first block.
        constant: of the biases of the last norm and of the unembedding.
    """

    tokens: Float[Tensor, "layers heads keys"]
    heads: Float[Tensor, "layers heads"]
    mlps: Float[Tensor, "layers"]
    biases: Float[Tensor, "layers"]
    embedding: float
    constant: float

    @property
    def logit(self) -> float:
        """The sum of all shares."""
        parts = (self.heads.nansum(), self.mlps.sum(), self.biases.sum())
        return float(sum(parts)) + self.embedding + self.constant

    def __repr__(self) -> str:
        rest = f"  embedding {self.embedding:.4g}, constant {self.constant:.4g}"
        return f"{super().__repr__()}\n{rest}, all {self.logit:.4g}"


@torch.no_grad()
def logit_shares(
    model: nn.Module,
    run: Callable[[], Any],
    token: int,
    *,
    against: int | None = None,
    position: int = -1,
) -> LogitShares:
    """Return the direct shares of heads, source tokens, MLPs and the embedding in a logit.

        run = lambda: model(**inputs)
        shares = regard.interventions.logit_shares(model, run, paris, against=rome)
        shares.heads                # layers × heads

    A share is the direct one: the same output also changes what later layers compute, which `heads`
    and `ablate` include. All shares add up to the logit.

    Args:
        model: a decoder of blocks that add attention and MLP to their input, with a norm and a
            linear layer at the end, as GPT-2 and Llama, in float32 or float64.
        run: runs the model on one sequence, and returns the logits or an output with `.logits`.
        token: the id of the token.
        against: the id of another token, whose logit is subtracted.
        position: the position of the logit, counted from the end: −1 is the last.

    Raises:
        ValueError: the model is not of this form, or an argument is out of range.
    """
    if position >= 0:
        raise ValueError(f"position must be negative, counted from the end, got {position}")
    with watch(model, values=True) as seen, _captured(model, position) as captured:
        result = run()
    logits = _logits(result, position)
    for name, number in (("token", token), ("against", against)):
        if number is not None and not 0 <= number < len(logits):
            raise ValueError(f"{name} must be from 0 to {len(logits) - 1}, got {number}")

    # 1. The logit as w · residual + c, and the shares of each block.
    blocks = _blocks(seen, captured)
    residual = captured[list(blocks)[-1]].output
    direction, constant = _direction(model, captured, residual, logits, token, against)
    rows = [
        _shares_of_block(model, call, captured, path, position, direction)
        for path, call in blocks.items()
    ]

    # 2. Together, with NaN for heads that a layer lacks.
    tokens = torch.nn.utils.rnn.pad_sequence(
        [tokens for tokens, _, _ in rows], batch_first=True, padding_value=torch.nan
    )
    names = layer_names(call.module for call in blocks.values())
    _, num_heads, num_keys = tokens.shape
    layers: list[Any] = list(names.values())
    shares = LogitShares(
        {"layers": layers, "heads": range(num_heads), "keys": range(num_keys)},
        tokens=tokens,
        heads=tokens.sum(dim=2),
        mlps=torch.stack([mlp for _, mlp, _ in rows]),
        biases=torch.stack([bias for _, _, bias in rows]),
        embedding=float(captured[next(iter(blocks))].input @ direction),
        constant=constant,
    )

    # 3. They must add up.
    logit = float(logits[token] - (0.0 if against is None else logits[against]))
    terms = sum(float(x.nan_to_num().abs().sum()) for x in shares.tensors.values())
    terms += abs(shares.embedding) + abs(shares.constant)
    if not abs(shares.logit - logit) <= _NEAR * terms:
        raise _refused(f"the shares add up to {shares.logit:.6g}, and the logit is {logit:.6g}")
    return shares


@dataclass(frozen=True)
class _Vectors:
    """Input and output of a module at one position; None if one is no sequence of vectors."""

    input: Any
    output: Any


@contextmanager
def _captured(model: nn.Module, position: int) -> Generator[dict[str, _Vectors]]:
    """Keep inputs and outputs of all modules at a position, in float64."""
    captured: dict[str, _Vectors] = {}

    def vector(values: Any) -> Any:
        while isinstance(values, tuple | list) and values:
            values = values[0]
        if not isinstance(values, Tensor) or values.dim() != 3 or not values.is_floating_point():
            return None
        has_position = len(values) == 1 and -position <= values.shape[1]
        return values[0, position].double() if has_position else None

    def hook_of(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, options: Mapping[str, Any], output: Any) -> None:
            # `watch` must not take this for a use of the output of attention.
            with without_torch_function():
                captured[name] = _Vectors(vector([*args, *options.values()]), vector(output))

        return hook

    with ExitStack() as hooks:
        for name, module in named_modules(model):
            handle = module.register_forward_hook(hook_of(name), with_kwargs=True)
            hooks.callback(handle.remove)
        yield captured


def _logits(result: Any, position: int) -> Float[Tensor, "vocabulary"]:
    logits = getattr(result, "logits", result)
    if not isinstance(logits, Tensor) or logits.dim() != 3 or len(logits) != 1:
        got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"run must return logits [1, positions, vocabulary], got {got}")
    if logits.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the model must have float32 or float64, got {logits.dtype}")
    if -position > logits.shape[1]:
        raise ValueError(f"position must be from −{logits.shape[1]} to −1, got {position}")
    return logits[0, position]


def _blocks(seen: Any, captured: Mapping[str, _Vectors]) -> dict[str, AttentionCall]:
    """Return the call of each block, by the path of the block; checks that they are a chain."""
    blocks: dict[str, AttentionCall] = {}
    for call in seen:
        path = _BLOCK.match(call.module)
        if path is None or path[0] in blocks or path[0] not in captured:
            raise _refused(f"{call} is not the only call of a numbered block")
        blocks[path[0]] = call
    if not blocks:
        raise _refused("no attention was seen")
    before = None
    for path in blocks:
        block = captured[path]
        if block.input is None or block.output is None:
            raise _refused(f"{path} does not map one sequence of vectors to another")
        if before is not None and not torch.equal(before, block.input):
            raise _refused(f"{path} does not get what the block before it returned")
        before = block.output
    return blocks


def _shares_of_block(
    model: nn.Module,
    call: AttentionCall,
    captured: Mapping[str, _Vectors],
    path: str,
    position: int,
    direction: Float[Tensor, "model_dim"],
) -> tuple[Float[Tensor, "heads keys"], Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the shares of the heads and tokens of a block, of its MLP, and of its bias.

    Raises:
        ValueError: it does not add the output projection and one other module to its input.
    """
    if call.projection is None:
        raise _refused(f"the output of {call} does not go to one linear layer as it is")
    block, attention = captured[path], captured.get(call.projection.module)
    if attention is None or attention.output is None:
        raise _refused(f"{call.projection.module} did not run as a module")

    # The rest must be the output of one module inside the block, its MLP.
    rest = block.output - block.input - attention.output
    near = _NEAR * (block.output.abs() + block.input.abs() + attention.output.abs())
    outputs = [inner.output for name, inner in captured.items() if name.startswith(f"{path}.")]
    candidates = [x for x in outputs if x is not None and x.shape == rest.shape]
    if not any(bool(((x - rest).abs() <= near).all()) for x in candidates):
        raise _refused(f"{path} does not add attention and one other module to its input")

    # A[i, j] · v_j W_O · w
    by_head = call.projection.by_head.double() @ direction
    value = call.value[0].double().repeat_interleave(call.heads // call.key_heads, dim=0)
    tokens = call.matrix[0][:, position].double() * (value @ by_head[..., None]).squeeze(-1)
    bias = getattr(dict(named_modules(model))[call.projection.module], "bias", None)
    return tokens, rest @ direction, direction @ (0 * direction if bias is None else bias.double())


def _direction(
    model: nn.Module,
    captured: Mapping[str, _Vectors],
    residual: Float[Tensor, "model_dim"],
    logits: Float[Tensor, "vocabulary"],
    token: int,
    against: int | None,
) -> tuple[Float[Tensor, "model_dim"], float]:
    """Return w and c: the logit is w · residual + c, with the scale of the last norm frozen."""
    modules = dict(named_modules(model))
    for name, unembedding in captured.items():
        # 1. The linear layer that returns the logits.
        weight = getattr(modules[name], "weight", None)
        if unembedding.output is None or not isinstance(weight, Tensor) or weight.dim() != 2:
            continue
        if not torch.equal(unembedding.output, logits.double()) or len(weight) != len(logits):
            continue

        for norm_name, norm in captured.items():
            # 2. The norm between it and the last block.
            if norm.input is None or not torch.equal(norm.input, residual):
                continue
            if norm.output is None or not torch.equal(norm.output, unembedding.input):
                continue

            # 3. w and c.
            gain, centred, shift = _frozen(modules[norm_name], norm)
            row = weight[token].double() - (0.0 if against is None else weight[against])
            direction = row * gain
            if centred:
                direction = direction - direction.mean()
            bias = getattr(modules[name], "bias", None)
            bias = torch.zeros_like(logits) if bias is None else bias.double()
            offset = bias[token] - (0.0 if against is None else bias[against])
            return direction, float(offset + row @ shift)
    raise _refused("its logits are not a norm and a linear layer of what the last block returned")


def _frozen(
    module: nn.Module, norm: _Vectors
) -> tuple[Float[Tensor, "model_dim"], bool, Float[Tensor, "model_dim"]]:
    """Return gain, whether the mean is subtracted, and bias of a norm, its scale being frozen."""
    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
    gain = torch.ones_like(norm.input) if weight is None else weight.double()
    shift = torch.zeros_like(norm.input) if bias is None else bias.double()
    for centred in (False, True):
        x = norm.input - norm.input.mean() if centred else norm.input
        for factor in (gain, 1.0 + gain):
            # Least squares, so that it is the scale that the model had.
            scaled = factor * x
            scale = scaled @ (norm.output - shift) / (scaled @ scaled)
            size = float(norm.output.abs().max())
            if bool(((scale * scaled + shift - norm.output).abs() <= _NEAR * size).all()):
                return factor * scale, centred, shift
    raise _refused(f"its last norm, {type(module).__name__}, is no RMSNorm or LayerNorm")


def _refused(reason: str) -> ValueError:
    return ValueError(f"logit_shares can't take this model apart: {reason}")
