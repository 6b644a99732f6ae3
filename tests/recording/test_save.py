"""What goes to disk comes back."""

import socketserver
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
import torch

import regard
from regard import AttentionMatrix, causal, padding
from regard.calls import AttentionCall
from regard.positions import alibi
from regard.recording import Recording, open, save
from regard.views import heatmap
from tests.recording.conftest import Made, tokens_of
from tests.small import BART, GROUPED


def assert_same(recording: Recording, matrices: list[AttentionMatrix], error: float) -> None:
    assert len(recording) == len(matrices)
    for call, matrix in zip(recording, matrices, strict=True):
        found, wanted = call.matrix[0].dense(), matrix[0].dense()
        assert (found - wanted).abs().max() <= error


def test_matrices_come_back(made: Made) -> None:
    for call, weights in zip(open(made.path), made.weights, strict=True):
        assert call.matrix.shape == (1, 4, 1100, 1100)
        torch.testing.assert_close(call.matrix[0].dense().double(), weights, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_type_is_kept(tmp_path: Path, dtype: str) -> None:
    x = torch.randn(1, 2, 300, 8).to(getattr(torch, dtype))
    matrix = AttentionMatrix(x, x, pattern=causal())
    found = save(matrix, tmp_path / "it.regard", tokens=tokens_of(300))
    assert found.about.dtype == dtype
    # Products of few and of many rows are summed up in another order.
    assert found.about.error < 1e-6
    assert_same(found, [matrix], 1e-6)
    assert found[0].matrix.dtype == matrix.dtype


def test_a_bias_for_more_queries_than_keys(tmp_path: Path) -> None:
    """As in cross-attention: the first query stands before the first key."""
    query, key = torch.randn(1, 2, 7, 4), torch.randn(1, 2, 5, 4)
    matrix = AttentionMatrix(query, key, bias=torch.randn(1, 2, 7, 5))
    names = {"tokens": tokens_of(7), "source": tokens_of(5)}
    assert_same(save(matrix, tmp_path / "it.regard", **names), [matrix], 1e-6)


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), (torch.bfloat16, 8)])
def test_narrowed_on_request_with_the_error_said(
    tmp_path: Path, dtype: str | torch.dtype, bits: int
) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 300, 8)
    matrix = AttentionMatrix(x, x, pattern=causal())
    found = save(matrix, tmp_path / "it.regard", tokens=tokens_of(300), dtype=dtype)
    gap = (found[0].matrix[0].dense() - matrix[0].dense()).abs()
    compared = torch.linspace(0, 299, 16).long()
    assert found.about.error == pytest.approx(float(gap[:, compared].max()), rel=0.02)
    assert 2.0 ** -(bits + 5) < found.about.error < 2.0 ** -(bits - 4)
    # Rows are those of the narrowed queries and keys: they sum up to 1.
    torch.testing.assert_close(found[0].matrix[0].dense().sum(-1), torch.ones(2, 300))


def test_biases_sinks_and_positions_come_back(tmp_path: Path) -> None:
    query, key = torch.randn(1, 2, 40, 8), torch.randn(1, 2, 60, 8)
    places = torch.arange(40).flip(0) + 3
    gaps = torch.arange(40) + torch.arange(40) // 2
    matrices = [
        AttentionMatrix(query, key, pattern=causal(), bias=alibi(2), sinks=torch.randn(2)),
        AttentionMatrix(query, key, pattern=causal(), positions=places, scale=0.1),
        AttentionMatrix(query, key, pattern=causal(), positions=gaps),
    ]
    recording = save(
        [AttentionCall.of(one, "decoder.cross", "cross", index=0) for one in matrices],
        tmp_path / "it.regard",
        tokens=tokens_of(40),
        source=tokens_of(60),
    )
    assert_same(recording, matrices, 1e-6)
    for call, matrix in zip(recording, matrices, strict=True):
        tile = recording.tile(call.index, 1, 0, 0, 0)[:40, :60]
        wanted = matrix[0, 1].dense()
        torch.testing.assert_close(
            torch.from_numpy(tile).nan_to_num(), wanted, rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize("heads", [slice(1, 3), slice(2, 5), slice(4, 6), slice(0, 6, 2)])
def test_some_heads_come_back_with_the_keys_that_they_look_at(tmp_path: Path, heads: slice) -> None:
    query, key = torch.randn(1, 6, 40, 8), torch.randn(1, 2, 40, 8)
    matrix = AttentionMatrix(2 * query, key, scale=1.0)
    found = save(matrix[:, heads], tmp_path / "it.regard", tokens=tokens_of(40))
    scores = 2 * query[0].double() @ key[0].double().repeat_interleave(3, dim=0).mT
    wanted = scores.softmax(dim=-1)[heads]
    assert found[0].heads == len(wanted)
    for number, weights in enumerate(wanted):
        tile = torch.from_numpy(found.tile(0, number, 0, 0, 0)[:40, :40]).double()
        # A score is a sum of 8 products, none above 100, and a row of 40 weights.
        torch.testing.assert_close(tile, weights, rtol=1e-4, atol=1e-12)
        torch.testing.assert_close(
            found[0].matrix[0, number].dense().double(), weights, rtol=1e-4, atol=1e-12
        )


def test_weights_alone_come_back(tmp_path: Path) -> None:
    weights = torch.randn(1, 3, 300, 300).softmax(-1)
    matrix = AttentionMatrix.from_weights(weights)
    found = save(matrix, tmp_path / "it.regard", tokens=tokens_of(300))
    assert_same(found, [matrix], 0.0)
    assert torch.equal(torch.from_numpy(found.tile(0, 2, 1, 0, 0)), weights[0, 2, :256, :256])
    assert found.weight(0, 1, 7, 8)[0] == float(weights[0, 1, 7, 8])


def test_weights_that_dropout_has_scaled_up_come_back(tmp_path: Path) -> None:
    weights = torch.tensor([[[[1.25, 0.0], [0.0, 1.25]]]])
    matrix = AttentionMatrix.from_weights(weights, check=False)
    assert_same(save(matrix, tmp_path / "it.regard", tokens=tokens_of(2)), [matrix], 0.0)


def test_one_sequence_of_several(tmp_path: Path) -> None:
    x = torch.randn(2, 2, 30, 8)
    matrix = AttentionMatrix(x, x, pattern=padding([20, 30]))
    with pytest.raises(ValueError, match="there are 2 sequences: choose one with batch=0"):
        save(matrix, tmp_path / "it.regard", tokens=tokens_of(30))
    found = save(matrix, tmp_path / "it.regard", tokens=tokens_of(30), batch=0)
    torch.testing.assert_close(found[0].matrix[0].dense(), matrix[0].dense())


@pytest.mark.usefixtures("quiet_transformers")
def test_a_watched_decoder(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**GROUPED)).eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.arange(30)[None])
    found = regard.save(seen, tmp_path / "it.regard", tokens=tokens_of(30), model="Llama")
    assert_same(regard.open(found_path := tmp_path / "it.regard"), [c.matrix for c in seen], 1e-6)
    assert found_path.is_dir()
    assert [call.layer for call in found] == ["0", "1"]
    assert all(stored.is_causal for stored in found.stored)
    assert found.measures(0)["first"] == pytest.approx(
        seen[0].matrix[0].dense()[:, :, 0].mean(dim=1).tolist(), rel=1e-5
    )
    assert "Llama: 30 tokens, 2 calls, 8 heads, float32" in repr(found)
    # What takes a call that was seen takes one that was recorded.
    assert "Page" in repr(regard.page(found, found.tokens))
    heatmap(found[1], found.tokens, head=2)


@pytest.mark.usefixtures("quiet_transformers")
def test_a_watched_encoder_decoder(tmp_path: Path) -> None:
    from transformers import BartConfig, BartModel

    torch.manual_seed(0)
    model = BartModel(BartConfig(**BART)).eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.arange(12)[None] + 3, decoder_input_ids=torch.arange(7)[None] + 3)
    found = save(seen, tmp_path / "it.regard", tokens=tokens_of(7), source=tokens_of(12))
    assert [text.name for text in found.texts] == ["source", "target"]
    assert [(call.group, call.queries, call.keys) for call in found][::2] == [
        ("encoder", 12, 12),
        ("decoder", 7, 7),
        ("decoder", 7, 7),
    ]
    assert_same(found, [call.matrix for call in seen], 1e-6)
    assert not found.has_all
    with pytest.raises(IndexError, match='"all" needs several calls of one size'):
        found.tile("all", "mean", 0, 0, 0)
    cross = next(call for call in found if call.kind == "cross")
    assert found.measures(cross.index)["distance"] == [None] * 4


def test_tokens_must_fit(tmp_path: Path) -> None:
    x = torch.randn(1, 1, 5, 4)
    with pytest.raises(ValueError, match="text has 4 tokens, but attention has 5 queries"):
        save(AttentionMatrix(x, x), tmp_path / "it.regard", tokens=tokens_of(4))
    assert not list(tmp_path.iterdir())


def test_the_last_rows_of_a_text(tmp_path: Path) -> None:
    query, key = torch.randn(1, 4, 13, 8), torch.randn(1, 2, 20, 8)
    matrix = AttentionMatrix(query, key, pattern=causal(), positions=torch.arange(7, 20))
    call = AttentionCall.of(matrix, "model.layers.3.attn", "self", index=0)
    tokens = tokens_of(20)
    recording = save(call, tmp_path / "it.regard", tokens=tokens, sections=[(9, "Nine")])
    assert_same(recording, [matrix], 1e-6)
    assert [text.name for text in recording.texts] == ["text", "text 7–19"]
    assert [text.tokens for text in recording.texts] == [tokens, tokens[7:]]
    (found,) = recording
    assert (found.kind, found.group, found.layer) == ("self", "", "3")
    assert (found.query_text, found.key_text) == (1, 0)
    assert [(one.text, one.token) for one in recording.about.sections] == [(0, 9)]
    # Rows elsewhere in a text are refused: nothing tells which they are.
    matrix = AttentionMatrix(query, key, pattern=causal(), positions=torch.arange(13))
    with pytest.raises(ValueError, match=r"text has 20 tokens, but .* has 13 queries"):
        save(matrix, tmp_path / "other.regard", tokens=tokens)


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    x = torch.randn(1, 1, 5, 4)
    path = tmp_path / "it.regard"
    first = save(AttentionMatrix(x, x), path, tokens=tokens_of(5))
    with pytest.raises(FileExistsError, match="exists: remove it, or pass overwrite=True"):
        save(AttentionMatrix(x, x), path, tokens=tokens_of(5))
    second = save(AttentionMatrix(2 * x, x), path, tokens=tokens_of(5), overwrite=True)
    assert open(path).digest == second.digest != first.digest
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="is not a recording: choose"):
        save(AttentionMatrix(x, x), tmp_path / "mine", tokens=tokens_of(5), overwrite=True)
    with pytest.raises(FileNotFoundError, match="create it first"):
        save(AttentionMatrix(x, x), tmp_path / "a" / "b", tokens=tokens_of(5))


def test_a_url_is_opened_like_a_folder(made: Made) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    handler = partial(Quiet, directory=str(made.path.parent))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = open(f"http://127.0.0.1:{server.server_address[1]}/made.regard")
        assert found.digest == made.recording.digest
        for level in (0, 3):
            tile, wanted = (one.tile(1, 2, level, 0, 0) for one in (found, made.recording))
            torch.testing.assert_close(
                torch.from_numpy(tile), torch.from_numpy(wanted), equal_nan=True
            )
        server.shutdown()


def test_nothing_optional_is_imported_early(run_python: object) -> None:
    code = "import regard, sys; print({'zarr', 'pydantic', 'fastapi'} & set(sys.modules))"
    assert run_python("-c", code).strip() == "set()"
