"""Functions that run on each worker of an engine."""

from types import SimpleNamespace
from typing import Any

from torch import distributed

from regard.distributed.ranks import Ranks
from regard.recording import vllm_worker


def started_recording(failing: list[int]) -> dict[str, Any]:
    """Return the answer of a worker whose recorder can't be made on some ranks."""

    class Worker(vllm_worker.RecordingWorker):
        model_runner = None

    def recorder(*arguments: Any, **options: Any) -> Any:
        if distributed.get_rank() in failing:
            raise ValueError("folder must be here")
        return SimpleNamespace(start=dict, state=lambda: {"recording": True}, is_recording=True)

    replaced = {"RequestRecorder": recorder, "tensor_parallel_ranks": lambda _: Ranks.of(None)}
    originals = {name: getattr(vllm_worker, name) for name in replaced}
    vars(vllm_worker).update(replaced)
    try:
        worker = Worker()
        answer = worker.start_recording("folder")
        return answer | {"has_recorder": worker._regard_recorder is not None}
    finally:
        vars(vllm_worker).update(originals)
