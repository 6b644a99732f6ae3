"""From an address to an answer: out of the cache, or computed, for those who still wait."""

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

from fastapi import HTTPException, Request, Response

from regard.recording import Recording
from regard.recording.all_heads import Steps
from regard.server.cache import DEFAULT_BYTES, Answer, Cache
from regard.server.file_layout import JSON, File, FileInSteps, InfoFile
from regard.server.job_queue import MOST_WAITING, NUM_THREADS, JobQueue

FOREVER = "max-age=31536000, immutable"
"""How long an answer may be kept that never changes."""


class Service:
    """The recordings that are served, what was computed of them, and what is being computed.

    Args:
        recordings: what to serve, in the order in which it is listed.
        private: whether answers are for one viewer only, and no cache between may keep them.
        cache_bytes: how much of what was computed is kept.
        threads: how many computations run at the same time.
        limit: how many may wait for their turn.

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
                    f"{recording.name} is among the recordings twice: {recording.digest}"
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
            raise HTTPException(404, f"there is no recording {digest} here: open the list again")
        return found

    async def answer(self, request: Request, digest: str, file: File) -> Answer:
        """Return a file of a recording.

        Raises:
            HTTPException: there is no such recording, as 404.
            IndexError: the recording has no such part.
            ValueError: it can't be computed as it was asked for.
            RecordingError: the recording is damaged.
            Busy: there is too much to do.
            Overdue: it took too long.
            Gone: the asker has gone.
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
        """Return a list of what there is in the recordings, as JSON.

        Raises:
            Busy: there is too much to do.
            Overdue: it took too long.
            Gone: the asker has gone.
        """
        key = (name, *self.recordings)
        return await self.computed(request, key, lambda: Answer.of(body(), JSON))

    async def computed(
        self, request: Request, key: Hashable, compute: Callable[[], Answer | Steps[Answer]]
    ) -> Answer:
        """Return an answer out of the cache, or compute it in one of the threads.

        Raises:
            Busy: there is too much to do.
            Overdue: it took too long.
            Gone: the asker has gone.
        """
        found = self.cache.get(key)
        if found is not None:
            return found

        async def gone() -> None:
            # Whoever sends more than a request may have is not listened to any more.
            with suppress(HTTPException):
                while (await request.receive())["type"] != "http.disconnect":
                    pass

        return await self.work.result(key, compute, gone)

    async def respond(self, request: Request, digest: str, file: File) -> Response:
        """Return a file of a recording as a response that can be kept for good.

        What the viewer reads first is asked for again each time: a later version of the server, or
        a published folder at the same address, may say something else of the same recording.
        """
        answer = await self.answer(request, digest, file)
        if isinstance(file, InfoFile):
            return response(request, answer, "no-cache")
        kept_by = "private" if self.private else "public"
        return response(request, answer, f"{kept_by}, {FOREVER}")


def response(request: Request, answer: Answer, caching: str) -> Response:
    """Return an answer, or only that it is as it was if the asker has it."""
    headers = {"Cache-Control": caching, "ETag": answer.etag}
    known = request.headers.get("If-None-Match", "")
    if answer.etag in (name.strip().removeprefix("W/") for name in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(answer.body, media_type=answer.media_type, headers=headers)


def service_of(request: Request) -> Service:
    """Return the service of the app that a request came to."""
    return request.app.state.service
