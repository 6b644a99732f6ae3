"""`RecordingWorker`: let a vLLM server record requests."""

from collections.abc import Iterable
from typing import Any

from regard.recording.request_recorder import RequestRecorder
from regard.vllm.engine import tensor_parallel_ranks


class RecordingWorker:
    r"""Add recording to the workers of vLLM.

        vllm serve MODEL --enforce-eager \
            --worker-extension-cls regard.recording.vllm_worker.RecordingWorker

    vLLM adds these methods to its workers, to be called with `collective_rpc`. Arguments and
    results are JSON. Until `start_recording` is called, nothing of the engine is touched.
    """

    # Private, and named so that vLLM's workers have nothing of that name.
    _regard_recorder: RequestRecorder | None = None

    def start_recording(
        self,
        folder: str,
        *,
        requests: str = "*",
        every: int = 1,
        limit: int = 100,
        max_tokens: int = 32_768,
        max_bytes: int = 2**33,
        where: str | int | Iterable[str | int] | None = None,
    ) -> dict[str, Any]:
        """Record the requests that follow, each as `folder/ID.regard`.

        Args:
            folder: an existing folder, as an absolute path on the server.
            requests: which ids to record, with wildcards: "*" for all. The id of a completion is
                "cmpl-" or "chatcmpl-" and the header X-Request-Id, if a client sends one. So
                clients can choose to be recorded.
            every: record every n-th of these only.
            limit: maximum number of requests to record.
            max_tokens: maximum tokens of a request; longer ones are left out.
            max_bytes: maximum bytes of queries, keys, values and outputs of the requests that run,
                and of those that wait to be written; what needs more is left out. Joining the steps
                of a request takes as much again for a moment.
            where: the layers to record; as for `regard.watch`.

        Returns:
            The state, as `recording_state` does; or `{"error": …}` if an argument is wrong, it is
            recording already, or the engine is not supported. It is not raised, because vLLM would
            close the connection, and leave the replies of other workers unread.
        """
        if self._regard_recorder is not None and self._regard_recorder.is_recording:
            return {"error": "requests are being recorded already: call stop_recording first"}
        runner: Any = getattr(self, "model_runner")  # noqa: B009

        def make() -> RequestRecorder:
            return RequestRecorder(
                runner,
                folder,
                requests=requests,
                every=every,
                limit=limit,
                max_tokens=max_tokens,
                max_bytes=max_bytes,
                where=where,
            )

        try:
            # All or none: one alone would wait for the heads of the others.
            recorder = tensor_parallel_ranks(runner).run(make)
        except Exception as error:  # noqa: BLE001
            return {"error": str(error) or type(error).__name__}
        recorder.start()
        self._regard_recorder = recorder
        return recorder.state()

    def recording_state(self) -> dict[str, Any]:
        """Return what was recorded since `start_recording`.

        Returns:
            recording: whether it goes on.
            written: the paths of finished recordings.
            running: number of requests that run and are recorded.
            waiting: number of requests that are still to be written.
            skipped: number of requests that were not recorded because 16 others were.
            left_out: ids of requests that were not written, with the reason.
        """
        recorder = self._regard_recorder
        return {"recording": False} if recorder is None else recorder.state()

    def stop_recording(self) -> dict[str, Any]:
        """Stop recording; requests that have ended are still written, in the background.

        Returns:
            The state, as `recording_state` does.
        """
        if self._regard_recorder is not None:
            self._regard_recorder.stop()
        return self.recording_state()
