"""The calls of another run of a model, whose parts `patch` gives to this one."""

from collections import Counter

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.call import AttentionCall
from regard.calls.check import DROPOUT
from regard.capture.call import UnreadableError
from regard.capture.captured import num_used_keys
from regard.capture.listener import CallSite
from regard.capture.seen import Seen
from regard.internals import is_backward
from regard.matrix.scores import Scores


class Donors:
    """The calls of a run: the n-th of a module is the donor of its n-th call in a run now.

    Args:
        seen: the calls.
    """

    def __init__(self, seen: Seen) -> None:
        self._calls: dict[str, list[AttentionCall]] = {}
        for call in seen:
            self._calls.setdefault(call.module, []).append(call)
        self._num_calls: Counter[str] = Counter()
        self._most_calls: Counter[str] = Counter()
        self._outputs: dict[tuple[AttentionCall, int], Tensor] = {}

    def of(
        self, site: CallSite, output: Float[Tensor, "batch heads queries value_dim"]
    ) -> AttentionCall:
        """Return the donor of the next call of a module.

        Raises:
            ValueError: there is none, or the two calls are not alike.
        """
        name, calls = site.name, self._calls.get(site.name, [])
        number = self._num_calls[name]
        self._num_calls[name] += 1
        self._most_calls[name] = max(self._most_calls[name], number + 1)
        if number >= len(calls):
            raise ValueError(
                f"seen: {name or 'the model'} made {len(calls)} calls when it was watched, "
                f"got call {number}"
            )
        if len(calls) > 1 and is_backward():
            raise UnreadableError(
                "it calls attention several times in a run, and a checkpoint that computes it "
                "again does not tell which"
            )

        call = calls[number]
        there, here = [call.batch, call.heads], list(output.shape[:2])
        if call.heads != here[1] or call.batch not in (1, here[0]):
            raise ValueError(
                f"seen: {call} was of {there} sequences and heads, and this one is of {here}"
            )
        if not call.heads_known:
            raise ValueError(f"seen: the heads of {call} are unknown")
        if call.check.passed is False or call.check.note == DROPOUT.note:
            raise ValueError(f"seen: {call} was not what its kernel returned: {call.check}")
        return call

    def output(
        self, call: AttentionCall, heads: list[int]
    ) -> Float[Tensor, "batch some queries value_dim"]:
        """Return what heads have returned, as A @ V."""
        value = call.value
        group = call.heads // value.shape[1]
        for head in heads:
            if (call, head) not in self._outputs:
                self._outputs[call, head] = call.matrix[:, head] @ value[:, head // group]
        return torch.stack([self._outputs[call, head] for head in heads], dim=1)

    def end_run(self) -> None:
        """Begin with the first call of each module again."""
        self._num_calls.clear()

    def check(self) -> None:
        """Raise RuntimeError if a module made less calls in each run than when it was watched."""
        for name, count in self._most_calls.items():
            if count < len(self._calls[name]):
                raise RuntimeError(
                    f"{name or 'the model'} made {len(self._calls[name])} calls when it was "
                    f"watched, and {count} in a run now: seen must have the calls of one run"
                )


def sizes(call: AttentionCall) -> tuple[int, int]:
    """Return how many queries and used keys a donor has."""
    used = num_used_keys(call.source.call) if isinstance(call.source, Scores) else call.keys
    return call.queries, used


def is_whole(call: AttentionCall) -> bool:
    """Return whether the queries and the keys of a donor have positions from 0 on."""
    queries, keys = sizes(call)
    first = call.source.call.first_position if isinstance(call.source, Scores) else None
    return call.kind == "cross" or queries >= keys or first == 0
