"""What a server records is bounded, and nothing of what can't be written is left behind."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from regard import AttentionMatrix, causal, window
from regard.attention.call import Attention
from regard.calls import AttentionCall
from regard.calls.check import EMPTY
from regard.distributed.ranks import RankError, Ranks
from regard.patterns import Pattern
from regard.recording import open, request_recorder
from regard.recording.request_memory import RequestMemory
from regard.recording.request_recorder import RequestRecorder
from regard.vllm import watcher as watcher_module
from regard.vllm.captured import Captured, joined_calls
from regard.vllm.layer import WatchedLayer
from regard.vllm.watcher import EndedRequest, EngineOptions, EngineWatcher
from tests.ranks import ranks
from tests.recording import on_ranks

pytestmark = pytest.mark.usefixtures("unchecked")

TOKENS, HEADS = 7, 2
CAUSAL = causal()
OPTIONS: dict[str, Any] = {"requests": "*", "every": 1, "limit": 100, "where": None}
BOUNDS: dict[str, Any] = {"max_tokens": 1000, "max_bytes": 10**6}


def returning(value: Any) -> Callable[..., Any]:
    def function(*arguments: Any, **more: Any) -> Any:
        return value

    return function


def _as_text(ids: list[int]) -> list[str]:
    return [str(one) for one in ids]


class Watcher:
    """Stands for the watcher of an engine: a token takes 100 bytes."""

    num_layers, token_bytes = 1, 100

    def __init__(self, runner: Any, options: EngineOptions) -> None:
        runner.options = options

    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    tokenizer = SimpleNamespace(convert_ids_to_tokens=_as_text)
    monkeypatch.setattr(request_recorder, "EngineWatcher", Watcher)
    monkeypatch.setattr(request_recorder, "check_runner", returning(None))
    monkeypatch.setattr(request_recorder, "tensor_parallel_ranks", returning(Ranks()))
    monkeypatch.setattr(request_recorder, "_tokenizer", returning(tokenizer))
    model = SimpleNamespace(enable_prompt_embeds=False, served_model_name="small")
    return SimpleNamespace(vllm_config=SimpleNamespace(model_config=model), options=None)


def recorder(runner: Any, folder: Path, **bounds: Any) -> RequestRecorder:
    found = RequestRecorder(runner, str(folder), **{**OPTIONS, **BOUNDS, **bounds})
    found.start()
    return found


def ended(name: str, num_tokens: int = TOKENS, problem: str = "") -> EndedRequest:
    x = torch.randn(1, HEADS, num_tokens, 4)
    call = AttentionCall.of(AttentionMatrix(x, x, pattern=causal()), "layers.0", check=EMPTY)
    return EndedRequest(name, name, True, list(range(num_tokens)), [call], problem)


def written(made: RequestRecorder) -> dict[str, Any]:
    made.stop()
    for thread in threading.enumerate():
        if thread.name == "regard-recording":
            thread.join(60)
    return made.state()


def test_a_request_is_written(runner: Any, tmp_path: Path) -> None:
    made = recorder(runner, tmp_path)
    assert runner.options.is_request_wanted("a")
    assert runner.options.obstacle("a", TOKENS) == ""
    runner.options.on_end(ended("a"))
    (path,) = written(made)["written"]
    assert open(path).tokens == list(map(str, range(TOKENS)))


def test_writes_that_fail_leave_nothing_behind(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a full disk, after some calls are written."""

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    made = recorder(runner, tmp_path)
    monkeypatch.setitem(request_recorder.save.__globals__, "_finish", full)
    for name in ("a", "b", "c"):
        assert runner.options.is_request_wanted(name)
        runner.options.on_end(ended(name))
    state = written(made)
    assert state["left_out"] == dict.fromkeys("abc", "[Errno 28] No space left on device")
    assert (state["written"], state["waiting"]) == ([], 0)
    assert not list(tmp_path.iterdir())


def test_a_partial_of_somebody_else_is_not_removed(runner: Any, tmp_path: Path) -> None:
    made = recorder(runner, tmp_path)
    (tmp_path / "a.regard.partial" / "calls").mkdir(parents=True)
    assert runner.options.is_request_wanted("a")
    runner.options.on_end(ended("a"))
    assert "a.regard.partial exists: move it away" in written(made)["left_out"]["a"]
    assert (tmp_path / "a.regard.partial" / "calls").is_dir()


def test_of_every_third_request_the_first_is_recorded(runner: Any, tmp_path: Path) -> None:
    made = recorder(runner, tmp_path, requests="mine-*", every=3, limit=2)
    asked = ["mine-1", "theirs-1", "mine-2", "mine-3", "theirs-2", "mine-4", *["mine-5"] * 9]
    recorded = filter(runner.options.is_request_wanted, asked)
    assert list(recorded) == ["mine-1", "mine-4"]
    made.stop()


def test_long_requests_are_left_out(runner: Any, tmp_path: Path) -> None:
    made = recorder(runner, tmp_path, max_tokens=8)
    for num_tokens in (8, 9):
        name = str(num_tokens)
        assert runner.options.is_request_wanted(name)
        runner.options.on_end(ended(name, num_tokens, runner.options.obstacle(name, num_tokens)))
    state = written(made)
    assert len(state["written"]) == 1
    assert state["left_out"] == {"9": "it had 9 tokens, and max_tokens is 8"}


def test_running_requests_share_the_memory(runner: Any, tmp_path: Path) -> None:
    made = recorder(runner, tmp_path, max_bytes=1000)
    for name in ("a", "b", "c"):
        assert runner.options.is_request_wanted(name)
    assert runner.options.obstacle("a", 6) == ""
    assert runner.options.obstacle("b", 4) == ""
    rule = "its 5 tokens took 500 bytes, other requests 600, and max_bytes is 1,000"
    assert runner.options.obstacle("b", 5) == rule
    # It is kept no longer, and others get its memory.
    assert runner.options.obstacle("c", 4) == ""
    made.stop()


def test_what_waits_is_bounded_too(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments: object, **more: object) -> None:
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(request_recorder, "save", slow)
    made = recorder(runner, tmp_path, max_bytes=1000)
    for name in ("a", "b"):
        assert runner.options.is_request_wanted(name)
    runner.options.on_end(ended("a", 6))
    begun.wait(60)
    runner.options.on_end(ended("b", 5))
    rule = "its 5 tokens took 500 bytes, other requests 600, and max_bytes is 1,000"
    assert made.state()["left_out"] == {"b": rule}
    go_on.set()
    assert len(written(made)["written"]) == 1


def test_nothing_is_gathered_that_is_not_written(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one of the workers can't keep, none of them brings together."""
    gathered: list[object] = []

    def together(calls: list[AttentionCall], ranks: Ranks) -> list[AttentionCall]:
        gathered.append(calls)
        return calls

    others: list[str] = []

    class TwoRanks(Ranks):
        """Stands for the first of two workers."""

        def __init__(self) -> None:
            self.group, self.rank, self.size = None, 0, 2

        def run(self, work: Callable[[], Any]) -> Any:
            result = work()
            for problem in others:
                raise RankError(f"rank 1 has failed: {problem}")
            return result

    patch = monkeypatch.setattr
    patch(request_recorder, "tensor_parallel_ranks", returning(TwoRanks()))
    patch(request_recorder, "_with_all_heads", together)
    made = recorder(runner, tmp_path, max_bytes=1000)
    for name in ("a", "b", "c"):
        assert runner.options.is_request_wanted(name)
    # Each worker gets the heads of all.
    assert "took 1,200 bytes" in runner.options.obstacle("a", 6)
    runner.options.on_end(ended("a", 6))
    others.append("no memory")
    runner.options.on_end(ended("b", 4))
    assert not gathered
    others.clear()
    runner.options.on_end(ended("c", 4))
    state = written(made)
    assert len(gathered) == len(state["written"]) == 1
    assert state["left_out"]["b"] == "rank 1 has failed: no memory"
    assert "max_bytes is 1,000" in state["left_out"]["a"]


@pytest.mark.processes
def test_all_workers_record_or_none() -> None:
    with ranks(2) as two:
        failed = two(on_ranks.started_recording, [1])
        started = two(on_ranks.started_recording, [])
    assert failed == [
        {"error": "rank 1 has failed: ValueError: folder must be here", "has_recorder": False},
        {"error": "folder must be here", "has_recorder": False},
    ]
    assert started == [{"recording": True, "has_recorder": True}] * 2


@pytest.mark.parametrize("name", ["max_tokens", "max_bytes"])
def test_bounds_are_checked(runner: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        recorder(runner, tmp_path, **{name: 0})
    with pytest.raises(TypeError, match=f"{name} must be of type int, got 1.5"):
        recorder(runner, tmp_path, **{name: 1.5})


def test_memory_is_given_back() -> None:
    memory = RequestMemory(10, 100, 10)
    assert memory.take("a", 6) == ""
    # Preempted, it has fewer tokens, and still holds those it had.
    assert memory.take("a", 3) == ""
    assert "other requests 60" in memory.take("b", 5)
    memory.free("a")
    assert memory.take("b", 5) == ""


class Engine:
    """A model runner with one layer of two heads, which runs requests in one step each.

    Attributes:
        rows: queries, keys, values and outputs of the latest step, [4, tokens, heads, dim].
    """

    def __init__(self) -> None:
        self.layer: Any = nn.Module()
        self.layer.kv_cache = torch.empty(0)
        self.layer.layer_name = "layers.0"
        self.layer.num_heads = self.layer.num_kv_heads = HEADS
        self.layer.head_size, self.layer.dtype = 4, torch.float32
        self.layer.impl = SimpleNamespace(forward=returning(None))
        group = SimpleNamespace(layer_names=["layers.0"])
        self.kv_cache_config = SimpleNamespace(kv_cache_groups=[group])
        tables = SimpleNamespace(block_tables=[SimpleNamespace(block_size=16)])
        self.input_batch = SimpleNamespace(block_table=tables)
        self.input_ids = SimpleNamespace(gpu=torch.arange(100))

    def get_model(self) -> nn.Module:
        return nn.ModuleList([self.layer])

    def execute_model(self, step: Any) -> None:
        scheduled = step.num_scheduled_tokens
        total = sum(scheduled.values())
        self.rows = rows = torch.randn(4, total, HEADS, 4)
        starts = torch.tensor([0, *scheduled.values()]).cumsum(0)
        metadata = SimpleNamespace(
            query_start_loc=starts, seq_lens=starts.diff(), causal=True, block_table=None
        )
        self.layer.impl.forward(self.layer, *rows[:3], self.layer.kv_cache, metadata, rows[3])

    def step(self, finished: tuple[str, ...] = (), **scheduled: int) -> None:
        batch = self.input_batch
        batch.num_reqs, batch.req_ids = len(scheduled), [*scheduled]
        batch.num_computed_tokens_cpu = np.zeros(len(scheduled), dtype=int)
        self.execute_model(
            SimpleNamespace(finished_req_ids=set(finished), num_scheduled_tokens=scheduled)
        )


def layer_of(
    index: int, name: str, module: Any, block_sizes: object, pattern: Pattern = CAUSAL
) -> WatchedLayer:
    nothing = torch.empty(1, HEADS, 0, 4)
    attention = Attention(
        query=nothing, key=nothing, pattern=pattern, scale=0.5, positions=range(0)
    )
    return WatchedLayer(module, 16, AttentionCall(index=index, module=name, kind="self"), attention)


def watching(found: list[EndedRequest], **options: Any) -> EngineOptions:
    given: dict[str, Any] = {
        "wanted": returning(True),
        "check": False,
        "request_name": str,
        "is_request_wanted": returning(True),
        "obstacle": returning(""),
        "on_end": found.append,
    }
    return EngineOptions(**given | options)


def weights_of(query: torch.Tensor, key: torch.Tensor, before: int) -> torch.Tensor:
    """Return causal weights of [tokens, heads, dim] within a window, [heads, queries, keys]."""
    scores = torch.einsum("qhd,khd->hqk", query.double(), key.double()) / 2
    place = torch.arange(len(key))
    distance = place[-len(query) :, None] - place
    return scores.masked_fill((distance < 0) | (distance > before), -torch.inf).softmax(dim=-1)


def test_requests_of_one_step_have_their_own_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "watched_layer", layer_of)
    engine, found = Engine(), list[EndedRequest]()
    with EngineWatcher(engine, watching(found)):
        engine.step(short=3, long=5)
        query, key, *_ = engine.rows
        engine.step(finished=("short", "long"), other=1)
    ended = {request.name: request for request in found}
    for name, rows in (("short", range(3)), ("long", range(3, 8))):
        # The ids are counted by the engine.
        assert ended[name].tokens == [*rows]
        (call,) = ended[name].calls
        mine = slice(rows.start, rows.stop)
        expected = weights_of(query[mine], key[mine], TOKENS)
        torch.testing.assert_close(call.matrix[0].dense().double(), expected, rtol=1e-5, atol=1e-6)


def test_windows_reach_into_a_cached_prefix() -> None:
    """As much of it is read as the first query behind it may attend to."""
    before, prefix, tokens = 3, 7, 12
    module = SimpleNamespace(sliding_window=before + 1)
    layer = layer_of(0, "layers.0", module, {}, window(before=before))
    query, key, value = torch.randn(3, tokens, HEADS, 4)
    captured = Captured(layer, watching([]))
    cached = torch.cat([key, value], dim=1)
    captured.restart(cached[captured.first_missing(prefix) : prefix], prefix)
    captured.add(query[prefix:], key[prefix:], value[prefix:], value[prefix:], [])
    (call,) = joined_calls([captured])
    expected = weights_of(query[prefix:], key, before)
    torch.testing.assert_close(call.matrix[0].dense().double(), expected, rtol=1e-5, atol=1e-6)


def test_what_is_too_long_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    found: list[EndedRequest] = []
    added: list[int] = []

    def obstacle(identifier: str, num_tokens: int) -> str:
        asked.append((identifier, num_tokens))
        return "too long" if num_tokens > 4 else ""

    def add(self: Captured, query: torch.Tensor, *tensors: Any) -> None:
        added.append(len(query))

    monkeypatch.setattr(watcher_module, "watched_layer", layer_of)
    monkeypatch.setattr(Captured, "add", add)
    engine = Engine()
    watcher = EngineWatcher(engine, watching(found, obstacle=obstacle))
    assert watcher.token_bytes == 4 * HEADS * 4 * 4
    with watcher:
        engine.step(short=3, long=5)
        # Asked once: what was left out stays out.
        engine.step(long=3)
        engine.step(finished=("long",), other=1)
    assert added == [3, 1]
    assert asked == [("short", 3), ("long", 5), ("other", 1)]
    assert (found[0].name, found[0].problem, found[0].finished) == ("long", "too long", True)
    assert found[0].calls[0].problem == "too long"
