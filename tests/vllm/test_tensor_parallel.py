"""Two workers that share the heads of a model write one recording with all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import materials
import regard
from tests.vllm.engines import TOLERANCE, engine, fed, generate
from tests.vllm.test_serve import wait_until

pytestmark = pytest.mark.slow

_PROMPTS = [[7 * i % 4000 + seed for i in range(40 + 11 * seed)] for seed in range(3)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return a small model with two heads for each worker, and its folder."""
    folder = tmp_path_factory.mktemp("model")
    transformers.AutoTokenizer.from_pretrained(materials.smollm2()).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=64,
        vocab_size=5000,
    )
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for name, parameter in made.named_parameters():
        # Large enough that attention isn't uniform.
        parameter.data *= 1.0 if "norm" in name else 8.0
    made.save_pretrained(folder)
    return folder, made.eval()


@pytest.fixture(scope="module")
def two_workers(model: tuple[Path, Any]) -> Iterator[Any]:
    """Start an engine with two workers, each a process."""
    llm = engine(
        model[0],
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
        worker_extension_cls="regard.recording.vllm_worker.RecordingWorker",
    )
    yield llm
    llm.llm_engine.model_executor.shutdown()


def _call(llm: Any, method: str, **options: Any) -> dict[str, Any]:
    first, _ = llm.collective_rpc(method, kwargs=options)
    return first


def test_all_heads_are_in_one_recording(
    two_workers: Any, model: tuple[Path, Any], tmp_path: Path
) -> None:
    _call(two_workers, "start_recording", folder=str(tmp_path))
    outputs = generate(two_workers, _PROMPTS)
    # A step in which the workers hear of the last requests' end; servers make it themselves.
    two_workers.llm_engine.step()
    _call(two_workers, "stop_recording")
    wait_until(lambda: not _call(two_workers, "recording_state")["waiting"])
    state = _call(two_workers, "recording_state")
    assert not state["left_out"]
    found = {regard.open(path).about.title: regard.open(path) for path in state["written"]}
    for output in outputs:
        with torch.no_grad():
            expected = model[1](torch.tensor([fed(output)]), output_attentions=True).attentions
        for call, weights in zip(found[output.request_id], expected, strict=True):
            assert call.matrix.shape == weights.shape
            assert (call.matrix.dense() - weights).abs().max() < TOLERANCE


def test_all_workers_record_or_none(two_workers: Any, tmp_path: Path) -> None:
    options = {"folder": str(tmp_path), "where": 77}
    first, second = two_workers.collective_rpc("start_recording", kwargs=options)
    assert first == second
    assert first["error"].startswith("where must match attention")
    states = two_workers.collective_rpc("recording_state")
    assert [state["recording"] for state in states] == [False, False]


def test_it_can_not_be_watched_from_outside(two_workers: Any) -> None:
    with (
        pytest.raises(ValueError, match=r"^llm runs in another"),
        regard.watch(two_workers),
    ):
        pass
