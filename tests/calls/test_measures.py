"""Numbers for each head, against dense weights."""

import pytest
import torch

from regard import AttentionMatrix, causal
from regard.calls import AttentionCall
from regard.calls.measures import MEASURES, measure, measures

HEADS, LENGTH, DIM = 3, 11, 5


def tensors(keys: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(1, HEADS, LENGTH, DIM), torch.randn(1, HEADS, keys, DIM)


def test_measures_are_those_of_the_weights() -> None:
    query, key = tensors()
    scores = (query.double() @ key.double().mT) / DIM**0.5
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)[0]
    places = torch.arange(LENGTH)
    distance = (places[:, None] - places).abs()
    expected = {
        "entropy": -(weights * weights.clamp(min=1e-300).log()).sum(dim=-1).mean(dim=-1),
        "distance": (weights * distance).sum(dim=(1, 2)) / LENGTH,
        "first": weights[..., 0].mean(dim=-1),
        "previous": weights.diagonal(-1, 1, 2).sum(dim=-1) / LENGTH,
        "itself": weights.diagonal(0, 1, 2).mean(dim=-1),
    }
    found = measure(AttentionMatrix(query, key, pattern=causal()))
    assert set(found) == set(MEASURES) == set(expected)
    for name, values in expected.items():
        assert torch.allclose(found[name].double(), values, atol=1e-6), name


def test_another_text_has_no_previous_token() -> None:
    query, key = tensors(keys=7)
    call = AttentionCall.of(AttentionMatrix(query, key), "decoder.0.cross", "cross", index=0)
    found = measure(call)
    assert all(found[name].isnan().all() for name in ("previous", "itself", "distance"))
    assert not found["first"].isnan().any()


def test_what_goes_to_tokens_beside_a_part_is_not_known() -> None:
    query, key = tensors()
    matrix = AttentionMatrix(query, key)[0]
    for part, unknown in (
        (matrix, set()),
        (matrix[:, 5:], set()),
        (matrix[:, :4, 4:], {"first", "itself", "previous"}),
        (matrix[:, 4:, 4:], {"first", "previous"}),
        (matrix[:, :, :10], {"itself"}),
    ):
        found = measure(part)
        assert {name for name, values in found.items() if values.isnan().all()} == unknown


def test_calls_may_have_different_numbers_of_heads() -> None:
    query, key = tensors()
    calls = [AttentionCall.of(AttentionMatrix(query[:, :n], key[:, :n]), index=0) for n in (3, 1)]
    found = measures(calls)["first"]
    assert found.shape == (2, 3)
    assert found.isnan().tolist() == [[False] * 3, [False, True, True]]
    assert measures([])["first"].shape == (0, 0)


def test_each_of_several_sequences() -> None:
    torch.manual_seed(0)
    matrix = AttentionMatrix(*torch.randn(2, 4, HEADS, LENGTH, DIM), pattern=causal())
    alone = [measure(matrix, batch=number) for number in range(4)]
    for name, values in measure(matrix).items():
        assert values.shape == (4, HEADS)
        torch.testing.assert_close(values, torch.stack([one[name] for one in alone]))
    assert measure(matrix[:, 1])["entropy"].shape == (4, 1)
    assert measure(matrix[0, 1])["entropy"].shape == (1,)
    fewer = matrix[:, :2]
    found = measures([matrix, fewer])["entropy"]
    assert found.shape == (2, 4, HEADS)
    assert bool(found[1, :, 2].isnan().all())
    assert torch.equal(found[1, :, :2], found[0, :, :2])
    with pytest.raises(ValueError, match="equally many sequences, got 1, 4: choose one with bat"):
        measures([matrix, matrix[:1]])
    assert measures([matrix, matrix[:1]], batch=0)["entropy"].shape == (2, HEADS)
