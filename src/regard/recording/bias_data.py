"""Biases as JSON and arrays."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.interventions.shifted import Shifted
from regard.positions import Bias
from regard.positions.alibi import Alibi
from regard.positions.bias import ComposedBias, Softcap
from regard.positions.from_tensor import FromTensor
from regard.positions.relative import Relative
from regard.recording.errors import RecordingError
from regard.recording.pattern_data import UNREADABLE, position, whole

Data = dict[str, Any]


def bias_as_data(bias: Bias, batch: int, store: Callable[[Tensor], str]) -> Data:
    """Describe the bias of one sequence; arguments as for `pattern_as_data`.

    Raises:
        TypeError: the bias is not one of Regard's.
        ValueError: it forbids pairs to some heads, or shifts their scores.
    """
    match bias:
        case Alibi():
            return {"kind": "alibi", "slopes": store(bias.slopes)}
        case Softcap():
            return {"kind": "softcap", "cap": bias.cap}
        case Relative():
            return {
                "kind": "relative",
                "table": store(bias.table),
                "max_distance": bias.max_distance,
                "bidirectional": bias.bidirectional,
            }
        case FromTensor():
            values = bias.values[batch if bias.values.shape[0] > 1 else 0]
            return {"kind": "given", "values": store(values), "first_query": bias.first_query}
        case ComposedBias():
            first, second = (bias_as_data(one, batch, store) for one in (bias.first, bias.second))
            return {"kind": "joined", "first": first, "second": second}
        case Shifted() if isinstance(bias.shift, Tensor) or bias.shift > -torch.inf:
            raise ValueError("weights that steer has changed can't be recorded")
        case Shifted():
            raise ValueError(
                "pairs that knock_out forbids to some heads can't be recorded: knock them out of "
                "all heads, without heads="
            )
        case _:
            raise TypeError(
                f"bias must be one of Regard's, got {type(bias).__name__}: use "
                "regard.positions.from_tensor(values)"
            )


def bias_from_data(data: Data, read: Callable[[str], Tensor]) -> Bias:
    """Return a described bias; arguments as for `pattern_from_data`.

    Raises:
        RecordingError: the description is invalid.
    """
    try:
        return _from_data(data, read)
    except RecordingError:
        raise
    except UNREADABLE as error:
        raise RecordingError(f"can't read its bias: {error!r}") from error


def check_bias(bias: Bias, heads: int, queries: range, num_keys: int) -> None:
    """Raise ValueError if a bias does not fit a call.

    Args:
        bias: the bias.
        heads: the number of heads.
        queries: the range of query positions.
        num_keys: the number of keys.
    """
    if isinstance(bias, ComposedBias):
        check_bias(bias.first, heads, queries, num_keys)
        check_bias(bias.second, heads, queries, num_keys)
    elif bias.num_heads not in (None, heads):
        raise ValueError(f"its bias must be for {heads} heads, got one for {bias.num_heads}")
    elif isinstance(bias, FromTensor):
        bias.check(queries, num_keys)


def _from_data(data: Data, read: Callable[[str], Tensor]) -> Bias:
    match data["kind"]:
        case "alibi":
            return Alibi(read(data["slopes"]).tolist())
        case "softcap":
            return Softcap(float(data["cap"]))
        case "relative":
            table = read(data["table"])
            buckets, heads = table.shape
            bias = Relative(
                heads, buckets, whole(data["max_distance"]), bool(data["bidirectional"])
            )
            bias.table = torch.nn.Parameter(table, requires_grad=False)
            return bias
        case "given":
            return FromTensor(read(data["values"])[None], position(data["first_query"]))
        case "joined":
            return ComposedBias(_from_data(data["first"], read), _from_data(data["second"], read))
        case kind:
            raise RecordingError(f"unknown kind of bias {kind!r}")
