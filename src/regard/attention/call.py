"""`Attention`: one call of attention, checked."""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import check_share
from regard.patterns import Layout, Pattern, everyone
from regard.patterns.integers import is_consecutive, is_whole
from regard.patterns.layout_cache import cached
from regard.patterns.pattern import Everyone
from regard.patterns.regular import Causal
from regard.positions import Bias, from_tensor
from regard.positions.bias import ComposedBias, compose
from regard.positions.from_tensor import FromTensor

Output = Float[Tensor, "batch heads queries value_dim"]
"""The output of attention."""

Lse = Float[Tensor, "batch heads queries"]
"""The log-sum-exp of each row of scores."""


Index = range | Tensor
"""Indices along an axis: a range, or any, [places], on the CPU."""


@runtime_checkable
class LazyTensor(Protocol):
    """A tensor that is read in parts, on demand.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        device: the device of its parts.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...

    def read(self, *indices: Index) -> Tensor:
        """Return the part at an index for each of the first axes."""
        ...

    def modified(self) -> bool:
        """Return whether it was modified in place since it was made."""
        ...


class KeepTensor(Protocol):
    """Returns a tensor that can be kept; a copy if `copy`."""

    def __call__(self, tensor: Tensor, *, copy: bool = False) -> Tensor: ...


def detached(tensor: Tensor, *, copy: bool = False) -> Tensor:
    """Detach a tensor; copy it if `copy`, or if it is an inference tensor (no version counter)."""
    tensor = tensor.detach()
    if not copy and not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def copied_if_inference(bias: Bias) -> Bias:
    """Copy a bias that has inference tensors (no version counter)."""
    if not any(tensor.is_inference() for tensor in bias.tensors):
        return bias
    with torch.inference_mode(False):
        return deepcopy(bias)


@dataclass(frozen=True, eq=False, kw_only=True)
class Attention:
    """One call of attention: its checked tensors, and the rules that mask and shift its scores.

    Attributes:
        query: [batch, heads, queries, key_dim].
        key: [batch, key_heads, keys, key_dim]; heads is a multiple of key_heads.
        value: [batch, key_heads, keys, value_dim]; None if unknown, as its matrix does not need it.
        pattern: which keys each query may attend to.
        bias: the score bias, or None.
        scale: factor on the scores.
        positions: the positions of the queries: a range if they are consecutive, else one for each,
            [queries], on the CPU.
        sinks: the sink score of each head, [heads]; only its matrix has them.
        lse: the log-sum-exp of rows if known, sinks included, [batch, heads, queries]. NaN entries
            of a tensor are computed and overwritten on demand.
        dropout: dropout probability of the weights.
        layouts: layouts computed so far, by block size.
    """

    query: Float[Tensor, "batch heads queries key_dim"] | LazyTensor
    key: Float[Tensor, "batch key_heads keys key_dim"] | LazyTensor
    value: Float[Tensor, "batch key_heads keys value_dim"] | None = None
    pattern: Pattern
    bias: Bias | None = None
    scale: float
    positions: range | Int[Tensor, "queries"]
    sinks: Float[Tensor, "heads"] | None = None
    lse: Float[Tensor, "batch heads queries"] | LazyTensor | None = None
    dropout: float = 0.0
    layouts: dict[int, Layout] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def checked(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        pattern: Pattern | None,
        bias: Bias | Tensor | None,
        scale: float | None,
        dropout: float,
        positions: int | Tensor | None,
    ) -> Self:
        """Check the arguments of `attend` and fill in the defaults.

        The value may be unknown: then it is `tensors` that refuses.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: sizes, dtypes or devices do not fit together.
        """
        # 1. Tensors.
        value_or_key = key if value is None else value
        for name, tensor in (("query", query), ("key", key), ("value", value_or_key)):
            if not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        query, key, value_or_key = autocasted(query, key, value_or_key)
        _check_tensors(query, key, value_or_key)

        # 2. Numbers.
        check_share("dropout", dropout)
        if scale is None:
            scale = default_scale(query.shape[-1])
        if not isinstance(scale, int | float) or not math.isfinite(scale):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"scale must be a finite number, got {scale!r}")

        # 3. Positions, and the rules that are indexed by them.
        num_queries, num_keys = query.shape[2], key.shape[2]
        places = _checked_positions(positions, num_queries, num_keys)
        pattern = checked_pattern(pattern, query.shape[0], span_of(places), num_keys)
        bias = checked_bias(bias, query, places, num_keys)
        return cls(
            query=query,
            key=key,
            value=None if value is None else value_or_key,
            pattern=pattern,
            bias=bias,
            scale=scale,
            positions=places,
            dropout=dropout,
        )

    def kept(
        self,
        keep: KeepTensor = detached,
        keep_bias: Callable[[Bias], Bias] = copied_if_inference,
        *,
        in_cache: bool = False,
    ) -> Self:
        """Return the call with tensors that can be kept: the rule of what is detached and copied.

        Sinks are copied, and the log-sum-exp, which is completed in place. Lazy tensors stay.

        Args:
            keep: returns a tensor to keep.
            keep_bias: returns the part of a bias to keep that is no tensor of numbers.
            in_cache: whether keys and values are copied if there are not as many as queries: the
                next step would overwrite them.
        """

        def keep_in_memory(tensor: Any, *, copy: bool = False) -> Any:
            if not isinstance(tensor, Tensor):
                return tensor
            return keep(tensor, copy=True) if copy else keep(tensor)

        copies_keys = in_cache and self.num_keys != self.num_queries
        return replace(
            self,
            query=keep_in_memory(self.query),
            key=keep_in_memory(self.key, copy=copies_keys),
            value=keep_in_memory(self.value, copy=copies_keys),
            bias=self._kept_bias(self.bias, keep, keep_bias),
            sinks=keep_in_memory(self.sinks, copy=True),
            lse=keep_in_memory(self.lse, copy=True),
        )

    def _kept_bias(
        self, bias: Bias | None, keep: KeepTensor, keep_bias: Callable[[Bias], Bias]
    ) -> Bias | None:
        if isinstance(bias, ComposedBias):
            parts = (bias.first, bias.second)
            return compose(*(self._kept_bias(part, keep, keep_bias) for part in parts))
        if not isinstance(bias, FromTensor):
            return None if bias is None else keep_bias(bias)
        values = keep(bias.values)
        # In wider scores, the lowest number of float16 would be a score like others.
        smallest = torch.finfo(values.dtype).min
        is_score = smallest > torch.finfo(self.lse_dtype).min / 4
        if is_score and bool((masked := values == smallest).any()):
            with torch.inference_mode(False):
                values = values.masked_fill(masked, -torch.inf)
        return replace(bias, values=values)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, which a kernel needs in memory.

        Raises:
            TypeError: one of them is not.
        """
        query, key, value = self.query, self.key, self.value
        assert isinstance(query, Tensor)
        assert isinstance(key, Tensor)
        if value is None:
            raise TypeError("value must be a tensor, got NoneType")
        return query, key, value

    @property
    def value_dim(self) -> int:
        """The head size of the values."""
        return self.tensors[2].shape[-1]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The numbers of sequences, heads, queries and keys."""
        return self.batch, self.num_heads, self.num_queries, self.num_keys

    @property
    def batch(self) -> int:
        return self.query.shape[0]

    @property
    def num_heads(self) -> int:
        return self.query.shape[1]

    @property
    def num_queries(self) -> int:
        return self.query.shape[2]

    @property
    def num_keys(self) -> int:
        return self.key.shape[2]

    @property
    def group(self) -> int:
        """The number of query heads per key head."""
        return self.num_heads // self.key.shape[1]

    @property
    def lse_dtype(self) -> torch.dtype:
        """The dtype of the log-sum-exp, in which scores are accumulated."""
        return torch.float64 if self.query.dtype == torch.float64 else torch.float32

    @property
    def first_position(self) -> int | None:
        """The position of the first query if the positions are consecutive."""
        return self.positions.start if isinstance(self.positions, range) else None

    @property
    def query_positions(self) -> Int[Tensor, "queries"]:
        """The position of each query, on the CPU."""
        if not isinstance(self.positions, range):
            return self.positions
        return torch.arange(self.positions.start, self.positions.stop, device="cpu")

    @property
    def simple_pattern(self) -> Pattern:
        """The pattern without members that have no effect on this call."""
        pattern, num_keys = self.pattern, self.num_keys
        if isinstance(pattern, Everyone) or not self.num_queries or not num_keys:
            return Everyone()
        queries = span_of(self.positions)
        if isinstance(pattern, Causal):
            # The common case, decided without tensors so that torch.compile can trace it.
            return Everyone() if queries.start >= num_keys - 1 else pattern
        name = ("simple", queries, num_keys)
        return cached(pattern, name, lambda: pattern.simplified(queries, num_keys))

    @property
    def is_dense(self) -> bool:
        """Whether every query may attend to every key."""
        return isinstance(self.simple_pattern, Everyone)

    @property
    def is_square_causal(self) -> bool:
        """Whether the pattern is causal and queries have the positions of the keys."""
        square = self.num_queries == self.num_keys and self.first_position == 0
        return square and isinstance(self.simple_pattern, Causal)

    @property
    def trains_bias(self) -> bool:
        """Whether gradients must flow into the bias."""
        if self.bias is None or not torch.is_grad_enabled():
            return False
        return any(tensor.requires_grad for tensor in self.bias.tensors)


def span_of(positions: range | Int[Tensor, "queries"]) -> range:
    """Return the positions from the lowest to the highest query."""
    if isinstance(positions, range):
        return positions
    low, high = positions.aminmax()
    return range(int(low), int(high) + 1)


def default_scale(key_dim: int) -> float:
    """Return 1/√key_dim."""
    return 1.0 / math.sqrt(max(1, key_dim))


def autocasted(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast tensors as autocast does for `scaled_dot_product_attention`."""
    device = tensors[0].device
    if not autocasts(device):
        return tensors
    kinds = (torch.float16, torch.bfloat16, torch.float32)
    dtype = torch.get_autocast_dtype(device.type)
    return tuple(x.to(dtype) if x.dtype in kinds else x for x in tensors)


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for a device."""
    known = device.type in ("cpu", "cuda") or torch.amp.is_autocast_available(device.type)
    return known and torch.is_autocast_enabled(device.type)


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    if _fit(query, key, value):
        return
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check_tensor(name, tensor, query)

    for axis, size in ((0, "batch size"), (1, "number of heads"), (2, "length")):
        if key.shape[axis] != value.shape[axis]:
            raise ValueError(
                f"value must have the {size} of key ({key.shape[axis]}), got {value.shape[axis]}"
            )
    if query.shape[0] != key.shape[0]:
        raise ValueError(
            f"key must have the batch size of query ({query.shape[0]}), got {key.shape[0]}"
        )
    if key.shape[1] == 0 or query.shape[1] % key.shape[1]:
        raise ValueError(
            f"the number of query heads ({query.shape[1]}) must be a multiple of the number of key "
            f"heads, got {key.shape[1]}"
        )
    if query.shape[3] != key.shape[3]:
        raise ValueError(
            f"key must have the head size of query ({query.shape[3]}), got {key.shape[3]}"
        )


def _check_tensor(name: str, tensor: Tensor, query: Tensor) -> None:
    if tensor.dim() != 4:
        raise ValueError(
            f"{name} must have 4 axes, [batch, heads, sequence, dim], "
            f"got {tensor.dim()} of shape {list(tensor.shape)}"
        )
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be a floating-point tensor, got {tensor.dtype}")
    for attribute in ("dtype", "device"):
        actual, expected = getattr(tensor, attribute), getattr(query, attribute)
        if actual != expected:
            raise ValueError(
                f"{name} must have the {attribute} of query ({expected}), got {actual}; "
                f"convert it with {name}.to(query.{attribute})"
            )


def _fit(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether all checks pass: a fast path for valid calls."""
    query_shape, key_shape, value_shape = query.shape, key.shape, value.shape
    return (
        len(query_shape) == len(key_shape) == len(value_shape) == 4
        and key_shape[:3] == value_shape[:3]
        and query_shape[0] == key_shape[0]
        and query_shape[3] == key_shape[3]
        and key_shape[1] > 0
        and query_shape[1] % key_shape[1] == 0
        and query.dtype == key.dtype == value.dtype
        and query.dtype.is_floating_point
        and query.device == key.device == value.device
    )


def _checked_positions(
    positions: int | Tensor | None, num_queries: int, num_keys: int
) -> range | Tensor:
    if positions is None:
        return range(num_keys - num_queries, num_keys)
    if isinstance(positions, Tensor):
        if not is_whole(positions) or positions.shape != (num_queries,):
            raise ValueError(
                f"positions must be integers, one per query, [{num_queries}], "
                f"got {positions.dtype} of shape {list(positions.shape)}"
            )
        return simplest(positions.detach().to("cpu", torch.long, copy=True))
    if isinstance(positions, bool) or not isinstance(positions, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "positions must be None, the position of the first query, or a tensor with one "
            f"position per query, got {type(positions).__name__}"
        )
    return range(positions, positions + num_queries)


def simplest(positions: Int[Tensor, "queries"]) -> range | Int[Tensor, "queries"]:
    """Return positions as a range if they are consecutive."""
    if not is_consecutive(positions):
        return positions
    first = int(positions[0]) if len(positions) else 0
    return range(first, first + len(positions))


def checked_pattern(pattern: Pattern | None, batch: int, queries: range, num_keys: int) -> Pattern:
    """Check a pattern for queries from the lowest to the highest position."""
    if pattern is None:
        return everyone()

    # Say how to pass the likely mistakes: a mask, and a function that was not called.
    if isinstance(pattern, Tensor):
        instead = (
            "pass an additive mask as bias="
            if pattern.is_floating_point()
            else "pass regard.patterns.from_mask(mask), where True means may attend"
        )
        raise TypeError(
            "pattern must be a Pattern such as causal() or window(before=128), got a tensor of "
            f"{pattern.dtype} and shape {list(pattern.shape)}; {instead}"
        )
    if not isinstance(pattern, Pattern):  # pyright: ignore[reportUnnecessaryIsInstance]
        name = getattr(pattern, "__name__", None)
        hint = f" {name}: call it, {name}(…)" if callable(pattern) and name else ""
        raise TypeError(
            "pattern must be a Pattern such as causal() or window(before=128), "
            f"got {type(pattern).__name__}{hint}"
        )

    pattern.check(batch, queries, num_keys)
    return pattern


def checked_bias(
    bias: Bias | Tensor | None,
    query: Tensor,
    positions: range | Int[Tensor, "queries"],
    num_keys: int,
) -> Bias | None:
    """Check a bias for queries at some positions."""
    if bias is None:
        return None
    batch, num_heads, num_queries, _ = query.shape
    if isinstance(bias, Tensor):
        bias = _bias_from_tensor(bias, positions, num_queries, num_keys)
    if not isinstance(bias, Bias):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "bias must be a Bias such as alibi(heads) or softcap(50.0), or a tensor "
            f"[batch or 1, heads or 1, queries, keys], got {type(bias).__name__}"
        )

    for name, actual, expected in (
        ("batch size", bias.batch_size, batch),
        ("number of heads", bias.num_heads, num_heads),
    ):
        if actual is not None and actual != expected:
            raise ValueError(f"bias must have the {name} of query ({expected}), got {actual}")
    if isinstance(bias, FromTensor):
        bias.check(span_of(positions), num_keys)
    for tensor in bias.tensors:
        if tensor.device != query.device:
            raise ValueError(
                f"bias must be on the device of query ({query.device}), got {tensor.device}"
            )
    return bias


def _bias_from_tensor(
    bias: Tensor, positions: range | Tensor, num_queries: int, num_keys: int
) -> Bias:
    if not bias.is_floating_point():
        raise ValueError(
            f"bias must be a floating-point tensor, got {bias.dtype}; "
            "pass a boolean mask as pattern=regard.patterns.from_mask(mask)"
        )
    if bias.dim() != 4 or bias.shape[2:] != (num_queries, num_keys):
        raise ValueError(
            f"bias must have the shape [batch or 1, heads or 1, {num_queries}, {num_keys}], "
            f"got {list(bias.shape)}"
        )
    if not isinstance(positions, range):
        raise ValueError(
            "a bias tensor needs consecutive query positions; "
            "pass regard.positions.from_tensor(values), which is indexed by position"
        )
    return from_tensor(bias, first_query=positions.start)
