"""The map in a real browser, as far as the server decides: links with a secret, frames, policy."""

import shutil
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from regard.server.assets import assets
from tests.server.made import Made
from tests.server.running import Running, served

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SHELL = "#regard"
READY = ".engine canvas"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        pytest.fail("these tests drive a browser: install Chromium (`apt-get install chromium`)")
    with sync_api.sync_playwright() as playwright:
        # Names of other sites, all on this machine.
        hosts = "--host-resolver-rules=MAP *.example 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, hosts])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    yield page
    page.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def other_site(folder: Path, body: str) -> Generator[int]:
    """Serve a page at another port; yield the port."""
    (folder / "index.html").write_text(f"<!doctype html><title>elsewhere</title>{body}")
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_link_on_another_site_opens_the_map(book: Made, tmp_path: Path, page: Any) -> None:
    with served(book.recording, token="secret", static=assets()) as running:
        link = f'<a href="{running.url}/">map</a>'
        with other_site(tmp_path, link) as port:
            page.goto(f"http://elsewhere.example:{port}/")
            page.click("a")
            page.wait_for_selector(READY)


def framed(running: Running, tmp_path: Path, page: Any, host: str) -> bool:
    """Say whether the map shows in a frame of a page of a host."""
    with other_site(
        tmp_path, f'<iframe width="900" height="700" src="{running.url}/"></iframe>'
    ) as port:
        page.goto(f"http://{host}:{port}/")
        page.wait_for_load_state("networkidle")
        if page.frames[1].locator(SHELL).count() == 0:
            return False
        page.frames[1].wait_for_selector(READY)
        return True


def test_notebooks_on_this_machine_may_frame_the_map(book: Made, tmp_path: Path, page: Any) -> None:
    with served(book.recording, token="secret", static=assets()) as running:
        assert framed(running, tmp_path, page, "localhost")
        assert framed(running, tmp_path, page, "127.0.0.1")
        assert not framed(running, tmp_path, page, "elsewhere.example")


def test_another_name_for_this_machine_reads_nothing(book: Made, page: Any) -> None:
    with served(book.recording, static=assets()) as running:
        answer = page.goto(running.url.replace("127.0.0.1", "rebound.example"))
        assert answer.status == 400


def test_the_viewer_keeps_to_the_policy(book: Made, page: Any) -> None:
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with served(book.recording, static=assets()) as running:
        page.goto(running.url)
        page.wait_for_selector(READY)
        page.wait_for_load_state("networkidle")
        assert complaints == []
        elsewhere = [
            url
            for url in asked
            if not url.startswith((running.url, "data:", f"blob:{running.url}"))
        ]
        assert elsewhere == []
