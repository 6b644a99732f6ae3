"""The shares of heads, source tokens and MLPs in a logit: direct logit attribution."""

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
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
_NEAR = 1e-5
"""How much sums may differ, relative to their terms: some roundings of float32, in which many norms
are computed whatever the dtype of a model."""


@dataclass(frozen=True, eq=False, repr=False)
class LogitShares(Result):
    """The shares of a logit, or of the difference of two, in float64; together they are the logit.

    The logit is linear in the residual stream if the scale of the last norm is frozen, and the
    residual stream is a sum: of the embedding, of the heads' outputs and of the MLPs' outputs.

    Attributes:
        tokens: of a source token by a head, A[i, j] · v_j W_O · w; NaN for heads that a layer
            lacks.
        heads: of a head, the sum over all tokens.
        mlps: of the rest of a block, its MLP.
        biases: of the biases of the output projections.
        embedding: of what the first block gets.
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
    for name, one in (("token", token), ("against", against)):
        if one is not None and not 0 <= one < len(logits):
            raise ValueError(f"{name} must be from 0 to {len(logits) - 1}, got {one}")
    blocks = _blocks(seen, captured)
    last = list(blocks)[-1]
    direction, constant = _direction(model, captured, captured[last].output, logits, token, against)
    rows = [
        _of_block(model, call, captured, path, position, direction) for path, call in blocks.items()
    ]
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
    wanted = float(logits[token] - (0.0 if against is None else logits[against]))
    terms = sum(float(x.nan_to_num().abs().sum()) for x in shares.tensors.values())
    terms += abs(shares.embedding) + abs(shares.constant)
    if not abs(shares.logit - wanted) <= _NEAR * terms:
        raise _refused(f"the shares add up to {shares.logit:.6g}, and the logit is {wanted:.6g}")
    return shares


@dataclass(frozen=True)
class _Vectors:
    """What a module got and returned at one position; None if it is no sequence of vectors."""

    input: Any
    output: Any


@contextmanager
def _captured(model: nn.Module, position: int) -> Generator[dict[str, _Vectors]]:
    """Take down what modules get and return at a position, in float64."""
    found: dict[str, _Vectors] = {}
    hooks: list[Any] = []

    def at(given: Any) -> Any:
        while isinstance(given, tuple | list) and given:
            given = given[0]
        if not isinstance(given, Tensor) or given.dim() != 3 or not given.is_floating_point():
            return None
        return (
            given[0, position].double() if len(given) == 1 and -position <= given.shape[1] else None
        )

    def hooked(name: str, module: nn.Module) -> None:
        def take(_: nn.Module, args: Any, options: Mapping[str, Any], output: Any) -> None:
            # `watch` must not take this for a use of the output of attention.
            with without_torch_function():
                found[name] = _Vectors(at([*args, *options.values()]), at(output))

        hooks.append(module.register_forward_hook(take, with_kwargs=True))

    try:
        for name, module in named_modules(model):
            hooked(name, module)
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _logits(result: Any, position: int) -> Float[Tensor, "vocabulary"]:
    logits = getattr(result, "logits", result)
    if not isinstance(logits, Tensor) or logits.dim() != 3 or len(logits) != 1:
        what = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"run must return logits [1, positions, vocabulary], got {what}")
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
        one = captured[path]
        if one.input is None or one.output is None:
            raise _refused(f"{path} does not map one sequence of vectors to another")
        if before is not None and not torch.equal(before, one.input):
            raise _refused(f"{path} does not get what the block before it returned")
        before = one.output
    return blocks


def _of_block(
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
    rest = block.output - block.input - attention.output
    near = _NEAR * (block.output.abs() + block.input.abs() + attention.output.abs())
    outputs = [one.output for name, one in captured.items() if name.startswith(f"{path}.")]
    alike = [x for x in outputs if x is not None and x.shape == rest.shape]
    if not any(bool(((x - rest).abs() <= near).all()) for x in alike):
        raise _refused(f"{path} does not add attention and one other module to its input")
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
    for name, head in captured.items():
        weight = getattr(modules[name], "weight", None)
        if head.output is None or not isinstance(weight, Tensor) or weight.dim() != 2:
            continue
        if not torch.equal(head.output, logits.double()) or len(weight) != len(logits):
            continue
        for other, norm in captured.items():
            alike = norm.input is not None and torch.equal(norm.input, residual)
            if alike and norm.output is not None and torch.equal(norm.output, head.input):
                gain, centred, shift = _frozen(modules[other], norm)
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
