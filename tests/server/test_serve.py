"""`regard map` as a process of its own: its link, its end, and what is said if it can't begin."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psutil
import pytest

from regard.server.serve import link, listening
from tests.server.made import Made

pytestmark = pytest.mark.processes

COMMAND = [sys.executable, "-c", "from regard.cli import main; main()", "map"]
PATIENCE = 60.0


@contextmanager
def process(
    *arguments: object, browser: Path | None = None
) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Run the command, without a browser unless there is one; yield it and its link."""
    opens = "--no-open" if browser is None else "--open"
    running = subprocess.Popen(
        [*COMMAND, *map(str, arguments), opens],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"BROWSER": str(browser)},
    )
    try:
        assert running.stdout is not None
        yield running, running.stdout.readline().strip()
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def ask(path: str) -> None:
    """Ask for something, of a server that may end meanwhile."""
    with suppress(httpx.HTTPError):
        httpx.get(path, timeout=PATIENCE, trust_env=False)


def interrupted(running: subprocess.Popen[str]) -> tuple[int, str]:
    """Press Ctrl-C, which reaches all of a group; return the exit code and what was complained."""
    os.killpg(running.pid, signal.SIGINT)
    _, complaints = running.communicate(timeout=PATIENCE)
    return running.returncode, complaints


def test_it_runs_until_ctrl_c(book: Made) -> None:
    with process(book.path) as (running, where):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{40,}/", where)
        found = httpx.get(f"{where}recordings.json", trust_env=False).json()
        assert [one["digest"] for one in found["recordings"]] == [book.digest]
        assert "map.js" in httpx.get(where, trust_env=False).text
        code, complaints = interrupted(running)
    assert code == 0
    assert complaints == "press Ctrl-C to stop\n"


def test_it_stops_while_it_is_asked(book: Made) -> None:
    """Ctrl-C with many requests under way: they end, in whatever way, and so does the server."""
    with process(book.path) as (running, where):
        paths = [
            f"{where}data/{book.digest}/tiles/c{call}-h{head}-{pool}/2/{x}/{y}.bin"
            for call in range(2)
            for head in range(3)
            for pool in ("mean", "max")
            for x in range(3)
            for y in range(3)
        ]
        statuses: list[int] = []

        def ask(some: list[str]) -> None:
            with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
                for path in some:
                    try:
                        statuses.append(client.get(path).status_code)
                    except httpx.HTTPError:
                        return

        askers = [threading.Thread(target=ask, args=(paths[start::8],)) for start in range(8)]
        for asker in askers:
            asker.start()
        while not statuses:
            time.sleep(0.01)
        code, complaints = interrupted(running)
        for asker in askers:
            asker.join(PATIENCE)
    assert code == 0
    assert "Traceback" not in complaints
    assert set(statuses) <= {200, 503}


def test_two_recordings(book: Made, pair: Made) -> None:
    with process(book.path, pair.path) as (_, where):
        found = httpx.get(f"{where}recordings.json", trust_env=False).json()
        assert [one["name"] for one in found["recordings"]] == ["book", "pair"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_open_only_by_a_secret(book: Made, host: str) -> None:
    with process(book.path, "--host", host) as (running, where):
        found = re.fullmatch(r"http://([^:/]+):(\d+)/([\w-]{40,})/", where)
        assert found is not None
        url = f"http://127.0.0.1:{found[2]}"
        with httpx.Client(base_url=url, trust_env=False) as client:
            assert client.get("/recordings.json").status_code == 403
            headers = {"Host": f"{found[1]}:{found[2]}"}
            answer = client.get(f"/{found[3]}/recordings.json", headers=headers)
            assert answer.status_code == 200
        # All users of a machine can read the arguments of all processes.
        assert found[3] not in " ".join(psutil.Process(running.pid).cmdline())


BROWSER = """#!/bin/sh
echo "$@" > "$(dirname "$0")/arguments"
"""


def test_the_secret_is_no_argument_of_the_browser(book: Made, tmp_path: Path) -> None:
    browser, arguments = tmp_path / "browser", tmp_path / "arguments"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    with process(book.path, browser=browser) as (_, where):
        while not (arguments.exists() and arguments.read_text().endswith("\n")):
            time.sleep(0.01)
        opened = arguments.read_text().strip()
        assert opened.startswith("file://")
        page = Path(opened.removeprefix("file://"))
        assert f'url={where}"' in page.read_text()
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700


class Stuck(SimpleHTTPRequestHandler):
    """Serves a recording, and never comes to an end with numbers of it."""

    asked: ClassVar[threading.Event]
    release: ClassVar[threading.Event]

    def do_GET(self) -> None:
        if "/query/c/" in self.path:
            self.asked.set()
            self.release.wait(PATIENCE)
        super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_though_a_recording_does_not_answer(book: Made, number: signal.Signals) -> None:
    Stuck.asked, Stuck.release = threading.Event(), threading.Event()
    handler = partial(Stuck, directory=str(book.path.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as site:
        serving = threading.Thread(target=site.serve_forever)
        serving.start()
        there = f"http://127.0.0.1:{site.server_address[1]}/{book.path.name}"
        try:
            with process(there) as (running, where):
                path = f"{where}data/{book.digest}/weight/c0-h0/5/3.json"
                asker = threading.Thread(target=ask, args=(path,))
                asker.start()
                assert Stuck.asked.wait(PATIENCE)
                os.kill(running.pid, number)
                running.wait(PATIENCE)
                asker.join(PATIENCE)
        finally:
            Stuck.release.set()
            site.shutdown()
            serving.join()


def test_the_next_port_is_taken_if_one_is_in_use() -> None:
    with listening("127.0.0.1", None) as first:
        first.listen()
        with listening("127.0.0.1", None) as second:
            assert second.getsockname()[1] != first.getsockname()[1]
        taken = first.getsockname()[1]
        with pytest.raises(OSError, match=f"port {taken} is in use: choose another with --port"):
            listening("127.0.0.1", taken)


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(OSError, match=r"can't listen on 192\.0\.2\.1"):
        listening("192.0.2.1", 0)
    with pytest.raises(OSError, match=r"can't listen on no\.such\.host\.invalid"):
        listening("no.such.host.invalid", 0)


def test_links() -> None:
    assert link("127.0.0.1", 8080) == "http://127.0.0.1:8080/"
    assert link("::1", 80) == "http://[::1]:80/"
    assert link("0.0.0.0", 80, "abc") == f"http://{socket.gethostname()}:80/abc/"
