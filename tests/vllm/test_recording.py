"""A worker of vLLM records requests, as many as it is told, and says which it left out."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.recording import request_recorder
from regard.recording.request_recorder import file_name
from tests.vllm.engines import fed, generate

pytestmark = pytest.mark.slow

Call = Callable[..., dict[str, Any]]

_PROMPTS = [list(range(1000 * n, 1000 * n + 40 + n)) for n in range(1, 5)]


@pytest.fixture
def call(smollm2: Any) -> Iterator[Call]:
    """Return a function that calls a method of the worker."""

    def call_worker(method: str, *arguments: Any, **more: Any) -> dict[str, Any]:
        (state,) = smollm2.collective_rpc(method, args=arguments, kwargs=more)
        return state

    yield call_worker
    call_worker("stop_recording")


def _written(llm: Any, call: Call) -> dict[str, Any]:
    """Stop, and return the state when all is written."""
    # A step in which the worker hears of the last requests' end; servers make it themselves.
    llm.llm_engine.step()
    call("stop_recording")
    for thread in threading.enumerate():
        if thread.name == "regard-recording":
            thread.join(60)
    return call("recording_state")


def test_requests_are_written(smollm2: Any, call: Call, tmp_path: Path) -> None:
    assert call("start_recording", str(tmp_path), where=[0, 29])["recording"]
    outputs = generate(smollm2, _PROMPTS)
    state = _written(smollm2, call)
    assert (state["recording"], state["left_out"]) == (False, {})
    recordings = {regard.open(path).about.title: regard.open(path) for path in state["written"]}
    tokenizer = request_recorder._tokenizer(smollm2.model_config)
    for output in outputs:
        recording = recordings[output.request_id]
        assert recording.texts[0].tokens == tokenizer.convert_ids_to_tokens(fed(output))
        assert [call.layer for call in recording] == ["0", "29"]


def test_which_requests(smollm2: Any, call: Call, tmp_path: Path) -> None:
    first = int(generate(smollm2, _PROMPTS[:1], 1)[0].request_id) + 1
    call("start_recording", str(tmp_path), every=2, limit=2, where=0)
    generate(smollm2, [*_PROMPTS, *_PROMPTS], 2)
    titles = [regard.open(path).about.title for path in _written(smollm2, call)["written"]]
    assert sorted(titles, key=int) == [str(first), str(first + 2)]
    call("start_recording", str(tmp_path), requests=f"*{first + 9}", where=0)
    generate(smollm2, _PROMPTS, 2)
    (path,) = _written(smollm2, call)["written"]
    assert regard.open(path).about.title == str(first + 9)


def test_requests_with_a_cached_prefix(smollm2: Any, call: Call, tmp_path: Path) -> None:
    generate(smollm2, _PROMPTS[:1], 1)
    call("start_recording", str(tmp_path), where=0)
    (output,) = generate(smollm2, _PROMPTS[:1])
    (path,) = _written(smollm2, call)["written"]
    recording = regard.open(path)
    assert output.num_cached_tokens == 32
    assert [len(text.tokens) for text in recording.texts] == [56, 24]
    tokenizer = request_recorder._tokenizer(smollm2.model_config)
    assert recording.texts[0].tokens == tokenizer.convert_ids_to_tokens(fed(output))
    assert recording.texts[1].name == "text 32–55"


def test_what_is_left_out(
    smollm2: Any, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_recorder, "MOST", 2)
    call("start_recording", str(tmp_path), where=[0, 1])
    model = smollm2.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
    # The engine computes something else than the layer said when the recording began.
    monkeypatch.setattr(model.model.layers[1].self_attn.attn.impl, "scale", 0.2)
    generate(smollm2, _PROMPTS, 4)
    state = _written(smollm2, call)
    assert (len(state["left_out"]), state["skipped"], state["written"]) == (2, 2, [])
    assert all("differs from A @ V" in reason for reason in state["left_out"].values())
    assert not list(tmp_path.iterdir())


def test_a_request_that_still_runs_is_left_out(smollm2: Any, call: Call, tmp_path: Path) -> None:
    from vllm import SamplingParams

    call("start_recording", str(tmp_path), where=0)
    engine = smollm2.llm_engine
    engine.add_request("long", {"prompt_token_ids": _PROMPTS[0]}, SamplingParams(max_tokens=9))
    engine.step()
    assert call("recording_state")["running"] == 1
    state = call("stop_recording")
    assert list(state["left_out"].values()) == ["it was still running when recording stopped"]
    while engine.has_unfinished_requests():
        engine.step()
    assert not list(tmp_path.iterdir())


def test_nothing_of_an_engine_is_touched_unless_it_records(
    smollm2: Any, call: Call, tmp_path: Path
) -> None:
    runner = smollm2.llm_engine.model_executor.driver_worker.worker.model_runner
    attention = runner.get_model().model.layers[0].self_attn.attn.impl

    def is_wrapped() -> bool:
        return "execute_model" in vars(runner) or "forward" in vars(attention)

    assert not is_wrapped()
    call("start_recording", str(tmp_path))
    assert is_wrapped()
    call("stop_recording")
    assert not is_wrapped()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": "here"}, "folder must be the absolute path of a folder, got 'here'"),
        ({"folder": "/nowhere"}, "folder must be the absolute path of a folder, got '/nowhere'"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"every": "2"}, "every must be of type int, got '2'"),
        ({"requests": 7}, "requests must be of type str, got 7"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"where": 77}, "where must match attention of the engine's model, got 77"),
    ],
)
def test_arguments(call: Call, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    answer = call("start_recording", **{"folder": str(tmp_path), **options})
    assert answer == {"error": message}
    assert not call("recording_state")["recording"]


def test_one_at_a_time(call: Call, tmp_path: Path) -> None:
    call("start_recording", str(tmp_path))
    error = "requests are being recorded already: call stop_recording first"
    assert call("start_recording", str(tmp_path)) == {"error": error}
    assert call("stop_recording") == call("stop_recording")


@pytest.mark.parametrize("identifier", ["../../x-0", "/etc/x-0", "..", "x\0y\n-0", "a" * 999])
def test_ids_of_clients_do_not_lead_elsewhere(identifier: str, tmp_path: Path) -> None:
    name = f"{file_name(identifier)}.regard"
    assert Path(name).name == name
    assert name.isascii()
    assert not name.startswith(".")
    (tmp_path / f"{name}.partial").mkdir()
