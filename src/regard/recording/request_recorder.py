"""Record requests of a vLLM engine, in the background."""

import os
import re
import shutil
import threading
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from regard.calls.call import AttentionCall
from regard.capture.gathered import gathered
from regard.capture.seen import Seen
from regard.capture.where import wanted
from regard.distributed.ranks import Ranks
from regard.errors import check_positive, first_line
from regard.recording.opening import PARTIAL
from regard.recording.request_memory import RequestMemory
from regard.recording.save import save
from regard.vllm.engine import check_runner, plain_name, tensor_parallel_ranks
from regard.vllm.watcher import EndedRequest, EngineOptions, EngineWatcher

MOST = 16
"""How many requests may run while they are recorded, and how many may wait to be written."""


class RequestRecorder:
    """Writes requests of an engine to recordings.

    Queries and keys are copied to the CPU as the engine computes them. A thread writes the
    requests that have ended, so that others needn't wait. If several workers share the heads of a
    model, they bring them together when a request ends, and the first one writes.

    Args:
        runner: the model runner of the engine, an object of vLLM.
        folder: the folder to write to; arguments as for `RecordingWorker.start_recording`.
        requests: which ids to record, with wildcards.
        every: record every n-th of these only.
        limit: maximum number of requests.
        max_tokens: maximum tokens of a request.
        max_bytes: maximum memory of running requests, and of those that wait to be written.
        where: the layers.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is wrong, or the engine is not supported.
    """

    def __init__(
        self,
        runner: Any,
        folder: str,
        *,
        requests: str,
        every: int,
        limit: int,
        max_tokens: int,
        max_bytes: int,
        where: str | int | Iterable[str | int] | None,
    ) -> None:
        self._ranks = tensor_parallel_ranks(runner)
        self._folder = Path(folder)
        if not self._folder.is_absolute() or not self._folder.is_dir():
            raise ValueError(f"folder must be the absolute path of a folder, got {folder!r}")
        # They come as JSON.
        for name, value, kind in (
            ("requests", requests, str),
            ("every", every, int),
            ("limit", limit, int),
            ("max_tokens", max_tokens, int),
            ("max_bytes", max_bytes, int),
        ):
            if type(value) is not kind:
                raise TypeError(f"{name} must be of type {kind.__name__}, got {value!r}")
        check_positive(every=every, limit=limit)
        self._requests, self._every, self._limit = requests, every, limit
        check_runner(runner, tensor_parallel=True)
        config = runner.vllm_config.model_config
        if config.enable_prompt_embeds:
            raise ValueError("llm can't be recorded: prompts may be embeddings, without tokens")
        self._model, self._tokenizer = _model_name(config), _tokenizer(config)
        self._watcher = EngineWatcher(
            runner,
            EngineOptions(
                wanted=wanted(where),
                offload="cpu",
                request_name=plain_name,
                is_request_wanted=self._is_chosen,
                obstacle=self._obstacle,
                on_end=self._take,
            ),
        )
        if not self._watcher.num_layers:
            raise ValueError(f"where must match attention of the engine's model, got {where!r}")
        # Of all workers, which bring their heads together.
        bounds = (max_tokens, max_bytes, self._ranks.size * self._watcher.token_bytes)
        # Two, since only one worker has what waits, and all must refuse the same running requests.
        self._running_memory, self._waiting_memory = RequestMemory(*bounds), RequestMemory(*bounds)
        self._num_matching = self._num_chosen = self._num_skipped = 0
        self._num_ended = self._num_handed_over = self._num_done = 0
        self._written: list[str] = []
        self._left_out: dict[str, str] = {}
        self._waiting = SimpleQueue[EndedRequest | None]()
        self.is_recording = False

    def start(self) -> None:
        """Begin to record."""
        self._watcher.__enter__()
        threading.Thread(target=self._write_all, name="regard-recording", daemon=True).start()
        self.is_recording = True

    def stop(self) -> None:
        """Stop; requests that have ended are still written."""
        if self.is_recording:
            self.is_recording = False
            self._watcher.__exit__(None, None, None)
            self._waiting.put(None)

    def state(self) -> dict[str, Any]:
        """Return what was recorded; see `RecordingWorker.recording_state`."""
        return {
            "recording": self.is_recording,
            "written": list(self._written),
            "running": self._num_chosen - self._num_ended,
            "waiting": self._num_handed_over - self._num_done,
            "skipped": self._num_skipped,
            "left_out": dict(self._left_out),
        }

    def _is_chosen(self, name: str) -> bool:
        if self._num_chosen >= self._limit or not fnmatchcase(name, self._requests):
            return False
        self._num_matching += 1
        if (self._num_matching - 1) % self._every:
            return False
        if self._num_chosen - self._num_ended >= MOST:
            self._num_skipped += 1
            return False
        self._num_chosen += 1
        return True

    def _obstacle(self, identifier: str, num_tokens: int) -> str:
        return self._running_memory.take(identifier, num_tokens)

    def _take(self, request: EndedRequest) -> None:
        self._num_ended += 1
        self._running_memory.free(request.identifier)
        if not request.finished:
            self._left_out[request.identifier] = "it was still running when recording stopped"
            return
        try:
            # All or none bring their heads together, and one of them knows what waits.
            self._ranks.run(lambda: self._reserve_memory(request))
            if self._ranks.size > 1:
                request = request._replace(calls=_with_all_heads(request.calls, self._ranks))
        except Exception as error:  # noqa: BLE001
            self._left_out[request.identifier] = first_line(error)
            self._waiting_memory.free(request.identifier)
            return
        if self._ranks.rank:
            self._waiting_memory.free(request.identifier)
            return
        self._num_handed_over += 1
        self._waiting.put(request)

    def _reserve_memory(self, request: EndedRequest) -> None:
        """Reserve the memory of a request while it waits.

        Raises:
            ValueError: it can't be written.
        """
        problem = request.problem
        if not problem and self._num_handed_over - self._num_done >= MOST:
            problem = f"{MOST} requests were waiting to be written"
        problem = problem or self._waiting_memory.take(request.identifier, len(request.tokens))
        if problem:
            raise ValueError(problem)

    def _write_all(self) -> None:
        while (request := self._waiting.get()) is not None:
            try:
                self._written.append(str(self._write(request)))
            except Exception as error:  # noqa: BLE001
                # Any error: others can still be written.
                self._left_out[request.identifier] = first_line(error)
            self._waiting_memory.free(request.identifier)
            self._num_done += 1

    def _write(self, request: EndedRequest) -> Path:
        Seen(request.calls).verify()
        path = self._folder / f"{file_name(request.identifier)}.regard"
        partial = path.with_name(path.name + PARTIAL)
        # Else it would be removed below, and it is not ours.
        if os.path.lexists(partial):
            raise FileExistsError(f"{partial} exists: move it away")
        try:
            save(
                request.calls,
                path,
                tokens=self._tokenizer.convert_ids_to_tokens(request.tokens),
                model=self._model,
                title=request.name[:200],
                progress=False,
            )
        except BaseException:
            # Nobody can record this request again.
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return path


def file_name(identifier: str) -> str:
    """Return a name for the recording of a request.

    Ids come from clients: they may have slashes, or be long. The end of an id makes it unique.

    >>> file_name("cmpl-../../etc/passwd-0-9f03c1aa")
    'cmpl-.._.._etc_passwd-0-9f03c1aa'
    """
    return re.sub(r"[^A-Za-z0-9._-]", "_", identifier)[-200:].lstrip(".-") or "request"


def _with_all_heads(calls: Sequence[AttentionCall], ranks: Ranks) -> list[AttentionCall]:
    """Return calls with the heads of all workers, which have as many each, in order."""
    own = [call.sharded(ranks.rank * call.heads, ranks.size * call.heads) for call in calls]
    return gathered(own, ranks.group)


def _model_name(config: Any) -> str:
    names = config.served_model_name
    return names if isinstance(names, str) else names[0]


def _tokenizer(config: Any) -> Any:
    """Load the tokenizer of an engine's model."""
    import transformers

    return transformers.AutoTokenizer.from_pretrained(
        config.tokenizer,
        revision=config.tokenizer_revision,
        trust_remote_code=config.trust_remote_code,
    )
