"""What the first viewer asks for first is computed before anybody asks."""

import time

import pytest

from regard.recording import Recording, RecordingError
from regard.server.layout import InfoFile
from tests.server.made import Made
from tests.server.running import Running, served

pytestmark = pytest.mark.usefixtures("one_thread")


def wait_until_computed(running: Running) -> None:
    end = time.monotonic() + 30
    while running.work.computed < 1 or running.work.num_running:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_is_there_when_it_is_asked_for(book: Made, pair: Made) -> None:
    with served(book.recording, pair.recording) as running:
        wait_until_computed(running)
        assert running.get(f"/data/{book.digest}/info.json").status_code == 200
        assert running.work.computed == 1
        # Of the others nobody may ever ask.
        assert running.get(f"/data/{pair.digest}/info.json").status_code == 200
        assert running.work.computed == 2


def test_what_is_wrong_is_told_to_those_who_ask(
    book: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(file: InfoFile, recording: Recording) -> bytes:
        raise RecordingError("it is not whole")

    monkeypatch.setattr(InfoFile, "body", body)
    with served(book.recording) as running:
        wait_until_computed(running)
        assert running.get("/recordings.json").status_code == 200
        answer = running.get(f"/data/{book.digest}/info.json")
        assert answer.status_code == 500
        assert answer.json() == {"error": "the recording is damaged: it is not whole"}


def test_without_a_recording_there_is_nothing_to_do() -> None:
    with served() as running:
        assert running.get("/recordings.json").json()["recordings"] == []
        assert running.work.computed == 0
