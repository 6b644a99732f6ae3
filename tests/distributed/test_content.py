"""The content of patterns and biases, which ranks compare."""

import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.distributed.content import described
from regard.patterns import Pattern, documents, neighbours, padding
from regard.positions import Relative


class FromFunction(Pattern):
    """A pattern with an attribute that one rank can't compare with another's."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def test(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.function(query, key)


def test_content_is_compared() -> None:
    some = [neighbours([(0, 1), (2, 3)]), documents(torch.arange(9) // 2), padding([3, 4])]
    for pattern in [*some, ~some[0], some[0] | some[1], FromFunction(torch.less)]:
        copy = pickle.loads(pickle.dumps(pattern))
        pattern.allows([0, 1], [0, 1])  # Derived attributes are no content.
        assert described(pattern) == described(copy)
    assert described(FromFunction(torch.less)) != described(FromFunction(torch.greater))
    first, second = (FromFunction(partial(isinstance, one)) for one in (1, 2))
    assert described(first) != described(second)
    with pytest.raises(TypeError, match=r"ranks can't compare their FromFunction: .*lambda"):
        described(FromFunction(lambda: None))
    bias = Relative(2, 8)
    before = described(bias)
    bias.eval()
    assert described(bias) == before
    with torch.no_grad():
        bias.table[3, 1] = 1.0
    assert described(bias) != before
