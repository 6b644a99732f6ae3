"""Rows, columns and pairs, against the dense matrix in float64."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import AttentionMatrix, causal
from regard.calls import AttentionCall
from regard.recording import RecordingError, save
from regard.recording.arrays import StoredArray
from tests.recording.conftest import Made


@pytest.mark.parametrize("head", [2, "mean"])
@pytest.mark.parametrize("call", [0, 1])
def test_strongest_keys_of_rows(made: Made, call: int, head: int | str) -> None:
    weights = made.weights[call]
    dense = weights.mean(dim=0) if head == "mean" else weights[head]
    keys, found, rest = made.recording.top_keys(call, head, range(700, 716), 5)
    wanted = dense[700:716].topk(5, dim=-1)
    torch.testing.assert_close(
        torch.from_numpy(found).double(), wanted.values, rtol=2e-5, atol=1e-7
    )
    assert torch.equal(torch.from_numpy(keys), wanted.indices)
    left = 1.0 - wanted.values.sum(dim=-1)
    torch.testing.assert_close(torch.from_numpy(rest).double(), left, rtol=1e-4, atol=1e-6)


def test_strongest_keys_in_the_mean_of_all_heads(made: Made) -> None:
    dense = torch.cat(made.weights).mean(dim=0)
    keys, found, rest = made.recording.top_keys("all", "mean", range(700, 716), 5)
    wanted = dense[700:716].topk(5, dim=-1)
    torch.testing.assert_close(
        torch.from_numpy(found).double(), wanted.values, rtol=2e-5, atol=1e-7
    )
    assert torch.equal(torch.from_numpy(keys), wanted.indices)
    left = 1.0 - wanted.values.sum(dim=-1)
    torch.testing.assert_close(torch.from_numpy(rest).double(), left, rtol=1e-4, atol=1e-6)
    with pytest.raises(IndexError, match="queries 0 to 1099, got 1096 to 1111"):
        made.recording.top_keys("all", "mean", range(1096, 1112), 5)


def test_strongest_queries_of_a_key(made: Made) -> None:
    column = made.weights[0][1, :, 40]
    queries, found, total = made.recording.top_queries(0, 1, 40, 7)
    wanted = column.topk(7)
    assert queries.tolist() == wanted.indices.tolist()
    torch.testing.assert_close(
        torch.from_numpy(found).double(), wanted.values, rtol=2e-5, atol=1e-7
    )
    assert total == pytest.approx(float(column.sum()), rel=1e-5)


def test_strongest_pairs_of_a_rectangle(made: Made) -> None:
    part = made.weights[1][0, 500:600, 450:550]
    edges, rest = made.recording.edges(1, 0, range(500, 600), range(450, 550), 10)
    wanted = part.flatten().topk(10)
    places = [(500 + place // 100, 450 + place % 100) for place in wanted.indices.tolist()]
    assert [(query, key) for query, key, _ in edges] == places
    assert [weight for *_, weight in edges] == pytest.approx(wanted.values.tolist(), rel=2e-5)
    assert rest == pytest.approx(float(part.sum() - wanted.values.sum()), rel=1e-4)


def test_one_weight_and_its_score(made: Made) -> None:
    found, score = made.recording.weight(0, 3, 800, 17)
    assert found == pytest.approx(float(made.weights[0][3, 800, 17]), rel=2e-5)
    matrix = made.recording[0].matrix
    assert score == pytest.approx(math.log(found) + float(matrix[0, 3].lse[800]), rel=1e-5)
    assert made.recording.weight(0, 3, 17, 800) == (0.0, -math.inf)


def test_a_row_that_is_not_there(made: Made) -> None:
    with pytest.raises(IndexError, match="queries 0 to 1099, got 1096 to 1111"):
        made.recording.top_keys(0, 0, range(1096, 1112), 5)
    with pytest.raises(IndexError, match="keys 0 to 1099"):
        made.recording.top_queries(0, 0, -1, 5)


def test_too_large_a_rectangle_is_refused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.recording.lookup._MOST_PAIRS", 1000)
    with pytest.raises(ValueError, match=r"at most .* pairs, got 100 × 100: zoom in"):
        made.recording.edges(0, 0, range(100), range(100), 5)


def test_a_row_of_the_matrix_reads_the_chunks_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key = (torch.randn(1, 4, 8192, 16) for _ in range(2))
    matrix = AttentionMatrix(query, key, pattern=causal())
    save(matrix, tmp_path / "long.regard", tokens=["t"] * 8192, progress=False)
    numbers = 0
    read = StoredArray.read

    def counted(array: StoredArray, *where: Any) -> Any:
        nonlocal numbers
        found = read(array, *where)
        numbers += found.size
        return found

    found = regard.open(tmp_path / "long.regard")[0].matrix
    monkeypatch.setattr(StoredArray, "read", counted)
    torch.testing.assert_close(found[0, 3, 4000], matrix[0, 3, 4000])
    # A chunk of queries, four of keys, and the log-sum-exps of a head; not four heads of 8,192.
    assert numbers <= 5 * 1024 * 16 + 8192


def test_pairs_of_every_other_row_have_their_own_names(tmp_path: Path) -> None:
    query, key = (torch.randn(1, 2, 40, 4) * 2 for _ in range(2))
    matrix = AttentionMatrix(query, key)
    found = save(matrix, tmp_path / "it.regard", tokens=["t"] * 40, progress=False)
    edges, _ = found.edges(0, 0, range(0, 40, 2), range(0, 40, 3), 5)
    for row, column, weight in edges:
        assert float(matrix[0, 0, row, column]) == pytest.approx(weight, rel=1e-5)


def test_rows_that_may_look_at_nothing(tmp_path: Path) -> None:
    query, key = (torch.randn(1, 1, 2048, 4) for _ in range(2))
    matrix = AttentionMatrix(query, key, pattern=causal() & regard.padding(starts=[1024]))
    found = save(matrix, tmp_path / "it.regard", tokens=["t"] * 2048, progress=False)
    torch.testing.assert_close(found[0].matrix.entropy().nats, matrix.entropy().nats)
    assert not bool(found[0].matrix[0, 0, 5].any())
    assert found[0].matrix[0:0].lse.shape == (0, 1, 2048)
    assert found.top_keys(0, 0, range(4), 2)[1].max() == 0.0


def test_another_recording_at_the_same_place(tmp_path: Path) -> None:
    """What is kept in memory of the first is not mixed with what is read of the second."""
    path = tmp_path / "it.regard"
    matrices = [
        AttentionMatrix(*(torch.randn(1, 1, 3000, 4) * 2 for _ in range(2))) for _ in range(2)
    ]
    save(matrices[0], path, tokens=["t"] * 3000, progress=False)
    found = regard.open(path)
    torch.testing.assert_close(found[0].matrix[0, 0, 10], matrices[0][0, 0, 10])
    save(matrices[1], path, tokens=["t"] * 3000, overwrite=True, progress=False)
    with pytest.raises(RecordingError, match=r"the SHA-256 of .*c/0/2/0 differs; .*open it again"):
        _ = found[0].matrix[0, 0, 2900]
    again = regard.open(path)
    torch.testing.assert_close(again[0].matrix[0, 0, 2900], matrices[1][0, 0, 2900])


def test_layers_are_called_as_the_model_calls_them(tmp_path: Path) -> None:
    x = torch.randn(1, 1, 8, 4)
    calls = [AttentionCall.of(AttentionMatrix(x, x), "layers.2", index=i) for i in range(2)]
    found = save(calls, tmp_path / "it.regard", tokens=["t"] * 8, progress=False)
    assert [call.layer for call in found] == ["2", "2"]
    alone = save(AttentionMatrix(x, x), tmp_path / "b.regard", tokens=["t"] * 8, progress=False)
    assert alone[0].layer == ""


def test_a_recording_that_was_removed_is_said_to_be_damaged(tmp_path: Path) -> None:
    x = torch.randn(1, 1, 8, 4)
    path = tmp_path / "it.regard"
    found = save(AttentionMatrix(x, x), path, tokens=["t"] * 8, progress=False)
    shutil.rmtree(path)
    with pytest.raises(RecordingError, match="query is damaged"):
        found[0].matrix.dense()
