"""Attention number by number."""

import json
import math

import pytest
import torch
from torch import nn

import regard
from regard.calls.call import AttentionCall
from regard.capture import Seen
from regard.views import explain, explain_call, steps, worked_example

# What follows from the vectors of the worked example, by hand and to three digits.
SCORES = {
    "The": 0.17,
    "animal": 0.77,
    "didn't": 0.20,
    "cross": 0.29,
    "street": 0.62,
    "it": 0.92,
    "was": 0.14,
    "tired": 1.22,
}
PLAIN = {"tired": 0.229, "it": 0.169, "animal": 0.146, "street": 0.126}
SCALED = {"tired": 0.180, "it": 0.152, "animal": 0.139}


def test_the_worked_example_has_its_scores() -> None:
    found = worked_example()
    scores = dict(zip(found.tokens, found.scores.tolist(), strict=True))
    assert scores == pytest.approx(SCORES, abs=1e-9)


@pytest.mark.parametrize(("scaled", "expected"), [(False, PLAIN), (True, SCALED)])
def test_the_worked_example_has_its_weights(scaled: bool, expected: dict[str, float]) -> None:
    found = worked_example(scaled=scaled)
    weights = dict(zip(found.tokens, found.weights.tolist(), strict=True))
    assert {token: round(weights[token], 3) for token in expected} == expected
    assert sum(weights.values()) == pytest.approx(1.0)
    by_hand = {token: math.exp(SCORES[token] * found.scale) for token in SCORES}
    total = sum(by_hand.values())
    assert weights == pytest.approx({token: x / total for token, x in by_hand.items()})


def test_a_word_without_a_query() -> None:
    with pytest.raises(ValueError, match=r"has queries for The, animal, .* got 'because'"):
        worked_example("because")


def test_vectors_of_ones_own() -> None:
    found = explain(["a", "b"], [2.0], [[0.0], [math.log(3) / 2]], [[1.0, 0.0], [0.0, 4.0]])
    assert found.weights.tolist() == pytest.approx([0.25, 0.75])
    assert found.output is not None
    assert found.output.tolist() == pytest.approx([0.25, 3.0])


def test_small_weights_stay_as_data() -> None:
    rows = explain(["a", "b"], [1.0], [[0.0], [-30.0]], scale=1.0).as_data()["rows"]
    assert rows[1]["weight"] == pytest.approx(math.exp(-30.0), rel=1e-6)


def test_vectors_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"\[2 tokens, size of query\], got a query"):
        explain(["a", "b"], [1.0], [[1.0]])
    with pytest.raises(ValueError, match=r"values must have one vector per token \(1\)"):
        explain(["a"], [1.0], [[1.0]], [[1.0], [2.0]])


def watched(values: bool) -> Seen:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True).eval()
    tokens = torch.randn(2, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    with regard.watch(model, values=values) as seen:
        model(tokens, src_mask=mask)
    return seen


def test_a_token_of_a_model() -> None:
    call = watched(values=True)[0]
    found = explain_call(call, list("abcde"), 3, head=1, batch=1)
    assert list(found.tokens) == ["a", "b", "c", "d"]
    assert found.asking == "d"
    query, key, value = (x[1, 1].double() for x in (call.query, call.key, call.value))
    scores = key[:4] @ query[3]
    assert torch.allclose(found.scores, scores)
    assert torch.allclose(found.scaled, scores / 2.0, atol=1e-5)
    weights = (scores / 2.0).softmax(dim=0)
    assert torch.allclose(found.weights, weights, atol=1e-6)
    assert found.output is not None
    assert torch.allclose(found.output, weights @ value[:4], atol=1e-6)
    assert "1 token is left out" in found.notes[1]


def test_a_token_without_values() -> None:
    found = explain_call(watched(values=False)[0], list("abcde"), 0, batch=0)
    assert found.values is None
    assert found.output is None
    with pytest.raises(ValueError, match=r"as many tokens as keys \(5\), got 2"):
        explain_call(watched(values=False)[0], ["a", "b"], 0)


class Plain(nn.Module):
    """Attention as a tutorial writes it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / 2
        masked = torch.ones(5, 5, dtype=torch.bool).triu(1)
        self.weights = scores.masked_fill(masked, -torch.inf).softmax(dim=-1)
        return self.weights @ value


def test_weights_of_plain_attention() -> None:
    model = Plain()
    with regard.watch(model) as seen:
        model(torch.randn(2, 5, 8))
    found = explain_call(seen[0], list("abcde"), 3, head=1, batch=1)
    assert (found.asking, list(found.tokens)) == ("d", ["a", "b", "c", "d"])
    assert torch.equal(found.weights, model.weights[1, 1, 3, :4].double())
    assert found.query is found.keys is found.scores is found.scaled is found.output is None
    assert found.notes == [
        "the model, head 1",
        "1 token is left out: weight 0 or masked",
        "the model computes its softmax itself: only the weights are known",
    ]
    row = json.loads(json.dumps(found.as_data()))["rows"][0]
    assert row["weight"] == pytest.approx(float(found.weights[0]))
    assert row["key"] is row["score"] is row["scaled"] is row["value"] is None
    (panel,) = steps(found).axes
    assert panel.get_title() == "softmax"


def test_data_is_json() -> None:
    data = json.loads(json.dumps(worked_example().as_data(), allow_nan=False))
    assert data["token"] == "it"
    assert [row["token"] for row in data["rows"]] == list(SCORES)
    assert data["rows"][1]["score"] == 0.77


def test_the_token_that_looks_is_named() -> None:
    call = watched(values=False)[0]
    assert explain_call(call, list("abcde"), -1).asking == "e"
    assert explain_call(call, list("abcde"), 2, asking="other").asking == "other"
    with pytest.raises(IndexError, match="token must be an index of 5 queries, got 5"):
        explain_call(call, list("abcde"), 5)
    with pytest.raises(IndexError):
        explain_call(call, list("abcde"), 0, batch=5)


def test_a_query_is_named_by_its_position() -> None:
    query, key = torch.randn(2, 1, 1, 5, 4)
    for position, asking in ((1, "b"), (7, "query 0")):
        matrix = regard.AttentionMatrix(query[:, :, :1], key, positions=position)
        call = AttentionCall.of(matrix)
        assert explain_call(call, list("abcde"), 0).asking == asking
    across = AttentionCall.of(regard.AttentionMatrix(query, key), kind="cross")
    assert explain_call(across, list("abcde"), 2).asking == "query 2"


def test_numbers_that_are_none_are_json() -> None:
    found = explain(["a", "b"], [float("nan")], [[1.0], [2.0]])
    assert json.loads(json.dumps(found.as_data(), allow_nan=False))["rows"][0]["weight"] is None
