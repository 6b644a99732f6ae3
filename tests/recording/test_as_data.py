"""Patterns and biases as data, and back."""

import json

import pytest
import torch
from torch import Tensor

from regard import (
    causal,
    columns,
    documents,
    everyone,
    global_at,
    neighbours,
    padding,
    pairs,
    prefix,
    strided,
    window,
)
from regard.interventions.shifted import Shifted
from regard.patterns import Pattern, from_mask
from regard.positions import Relative, alibi, from_tensor, softcap
from regard.positions.bias import compose
from regard.recording.bias_data import bias_as_data, bias_from_data
from regard.recording.errors import RecordingError
from regard.recording.pattern_data import pattern_as_data, pattern_from_data


class Shelf:
    """Keeps tensors by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def store(self, tensor: Tensor) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = tensor
        return name

    def read(self, name: str) -> Tensor:
        return self.tensors[name]


PATTERNS = {
    "everyone": everyone(),
    "causal": causal(),
    "window": window(before=3, after=2),
    "strided": strided(4),
    "columns": columns(every=5),
    "prefix": prefix(7),
    "global_at": global_at([2, 11]),
    "pairs": pairs(queries=slice(3, None), keys=[0, 1, 5]),
    "neighbours": neighbours([(0, 3), (5, 1), (9, 9), (19, 0)]),
    "documents": documents([0] * 8 + [1] * 12),
    "from_mask": from_mask(torch.rand(20, 20, generator=torch.manual_seed(1)) > 0.5),
    "combined": causal() & (window(before=2) | ~columns(every=3)) | global_at([4]),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_comes_back(name: str) -> None:
    pattern, shelf = PATTERNS[name], Shelf()
    data = json.loads(json.dumps(pattern_as_data(pattern, 0, shelf.store)))
    again = pattern_from_data(data, shelf.read)
    assert torch.equal(again.allows(range(20), range(20)), pattern.allows(range(20), range(20)))


@pytest.mark.parametrize("batch", [0, 1])
def test_a_pattern_of_several_sequences_becomes_that_of_one(batch: int) -> None:
    several = [
        padding([12, 20]),
        padding(starts=[3, 0]),
        documents(torch.tensor([[0] * 20, [0] * 4 + [1] * 16])),
        from_mask(torch.rand(2, 20, 20) > 0.5),
    ]
    for pattern in several:
        shelf = Shelf()
        again = pattern_from_data(pattern_as_data(pattern, batch, shelf.store), shelf.read)
        mask = again.allows(range(20), range(20)).reshape(20, 20)
        assert torch.equal(mask, pattern.allows(range(20), range(20))[batch])


class Odd(Pattern):
    """A pattern of somebody else."""

    def test(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query + key) % 2 == 1


def test_a_pattern_of_somebody_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got Odd: use regard.patterns.from_mask"):
        pattern_as_data(causal() & Odd(), 0, Shelf().store)


def table() -> Relative:
    bias = Relative(num_heads=3, num_buckets=8, max_distance=16, bidirectional=False)
    torch.nn.init.normal_(bias.table)
    return bias


BIASES = {
    "alibi": alibi(3),
    "softcap": softcap(2.5),
    "relative": table(),
    "from_mask": from_tensor(torch.randn(2, 3, 20, 20)),
    "joined": compose(softcap(3.0), compose(alibi(3), from_tensor(torch.randn(1, 1, 20, 20)))),
}


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_comes_back(name: str) -> None:
    bias, shelf = BIASES[name], Shelf()
    batch = 1 if bias.batch_size == 2 else 0
    data = json.loads(json.dumps(bias_as_data(bias, batch, shelf.store)))
    again = bias_from_data(data, shelf.read)
    place, head = torch.arange(20), torch.arange(3)[:, None, None]
    scores = torch.randn(3, 20, 20)
    where = (head, place[:, None], place)
    wanted = bias.adjust(scores, torch.tensor(batch), *where)
    torch.testing.assert_close(again.adjust(scores, torch.tensor(0), *where), wanted)


class Custom:
    """A bias of somebody else."""

    additive = relative = True
    batch_size = num_heads = None
    tensors = ()

    def adjust(
        self, scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        return scores + 1.0


def test_a_bias_of_somebody_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got Custom: use regard.positions.from_tensor"):
        bias_as_data(Custom(), 0, Shelf().store)


def test_pairs_that_are_forbidden_to_some_heads() -> None:
    bias = compose(softcap(3.0), Shifted(causal(), (1,), 2))
    assert bias is not None
    with pytest.raises(ValueError, match=r"^pairs that knock_out forbids to some heads can't be"):
        bias_as_data(bias, 0, Shelf().store)
    with pytest.raises(ValueError, match=r"^weights that steer has changed can't be recorded$"):
        bias_as_data(Shifted(causal(), (1,), 2, 0.5), 0, Shelf().store)


@pytest.mark.parametrize(
    "data", [{}, {"kind": "moon"}, {"kind": "window", "before": "x", "after": 0}, {"kind": "not"}]
)
def test_a_description_of_nothing_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(RecordingError):
        pattern_from_data(data, Shelf().read)
    with pytest.raises(RecordingError):
        bias_from_data(data, Shelf().read)
