"""The tests run with checks of shapes; without them, others would say less than they seem to."""

from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError

import regard
from regard.layers import MultiHeadAttention
from regard.matrix.entropy import EntropyResult


def wrong_function() -> Any:
    query, key = torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 5)
    return regard.attend(query, key, key)


def wrong_class_method() -> Any:
    return regard.AttentionMatrix.from_weights(torch.zeros(3))


def wrong_method() -> Any:
    return MultiHeadAttention(8, 2)(torch.zeros(3, 8))


def wrong_fields() -> Any:
    return EntropyResult({}, torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("wrong", [wrong_function, wrong_class_method, wrong_method, wrong_fields])
def test_wrong_shapes_are_noticed(wrong: Any) -> None:
    with pytest.raises(TypeCheckError):
        wrong()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("wrong", [wrong_function, wrong_class_method, wrong_method])
def test_unchecked_users_are_told_in_our_words(wrong: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        wrong()
