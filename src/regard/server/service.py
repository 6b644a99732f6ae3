"""Answer requests from the cache, or by computing."""

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

from fastapi import HTTPException, Request, Response

from regard.recording import Recording
from regard.recording.all_heads import Steps
from regard.server.cache import DEFAULT_BYTES, Answer, Cache
from regard.server.file_layout import JSON, File, FileInSteps, InfoFile
from regard.server.job_queue import MOST_WAITING, NUM_THREADS, JobQueue

FOREVER = "max-age=31536000, immutable"
"""Cache-Control of immutable answers."""


class Service:
    """The served recordings, with a cache and a job queue.

    Args:
        recordings: the recordings, in listed order.
        private: whether shared caches must not store answers.
        cache_bytes: size of the cache.
        threads: number of concurrent computations.
        limit: maximum number of waiting computations.

    Raises:
        ValueError: two recordings have one digest.
    """

    def __init__(
        self,
        recordings: Iterable[Recording],
        *,
        private: bool = False,
        cache_bytes: int = DEFAULT_BYTES,
        threads: int = NUM_THREADS,
        limit: int = MOST_WAITING,
    ) -> None:
        self.recordings: dict[str, Recording] = {}
        for recording in recordings:
            if recording.digest in self.recordings:
                raise ValueError(
                    f"recordings must differ, got {recording.name} twice: {recording.digest}"
                )
            self.recordings[recording.digest] = recording
        self.private = private
        self.cache = Cache(cache_bytes)
        self.work = JobQueue(self.cache.put, threads, limit)

    def add(self, recording: Recording) -> None:
        """Serve a further recording."""
        self.recordings = {**self.recordings, recording.digest: recording}

    def recording(self, digest: str) -> Recording:
        """Return a recording by its content address.

        Raises:
            HTTPException: there is none, as 404.
        """
        found = self.recordings.get(digest)
        if found is None:
            raise HTTPException(404, f"there is no recording {digest}: reload the list")
        return found

    async def answer(self, request: Request, digest: str, file: File) -> Answer:
        """Return a file of a recording.

        Raises:
            HTTPException: there is no such recording, as 404.
            IndexError: the recording has no such part.
            ValueError: the parameters are invalid.
            RecordingError: the recording is damaged.
            Busy, Overdue, Gone: see `JobQueue.result`.
        """
        recording = self.recording(digest)

        def compute() -> Steps[Answer]:
            if isinstance(file, FileInSteps):
                body = yield from file.steps(recording)
            else:
                body = file.body(recording)
            return Answer.of(body, file.media_type)

        return await self.computed(request, (recording.digest, file.path), compute)

    async def listed(self, request: Request, name: Hashable, body: Callable[[], bytes]) -> Answer:
        """Return a JSON list; see `computed`."""
        key = (name, *self.recordings)
        return await self.computed(request, key, lambda: Answer.of(body(), JSON))

    async def computed(
        self, request: Request, key: Hashable, compute: Callable[[], Answer | Steps[Answer]]
    ) -> Answer:
        """Return a cached answer, or compute it; raises as `JobQueue.result`."""
        found = self.cache.get(key)
        if found is not None:
            return found

        async def gone() -> None:
            # The body is too long.
            with suppress(HTTPException):
                while (await request.receive())["type"] != "http.disconnect":
                    pass

        return await self.work.result(key, compute, gone)

    async def respond(self, request: Request, digest: str, file: File) -> Response:
        """Return a file of a recording as an immutable response.

        The viewer's metadata is revalidated each time: it may differ in a later version of the
        server, or in a published folder at the same address.
        """
        answer = await self.answer(request, digest, file)
        if isinstance(file, InfoFile):
            return response(request, answer, "no-cache")
        kept_by = "private" if self.private else "public"
        return response(request, answer, f"{kept_by}, {FOREVER}")


def response(request: Request, answer: Answer, caching: str) -> Response:
    """Return an answer, or 304 if the client has it."""
    headers = {"Cache-Control": caching, "ETag": answer.etag}
    known = request.headers.get("If-None-Match", "")
    if answer.etag in (name.strip().removeprefix("W/") for name in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(answer.body, media_type=answer.media_type, headers=headers)


def service_of(request: Request) -> Service:
    """Return the service of a request's app."""
    return request.app.state.service
