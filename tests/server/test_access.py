"""Who may ask, by which name, with which secret."""

from collections.abc import Iterator

import httpx
import pytest

from regard.server.app import app
from tests.server.made import Made
from tests.server.running import VIEWER, Running, served

TOKEN = "a-secret_that.nobody~guesses"


@pytest.fixture(scope="module")
def guarded(book: Made) -> Iterator[Running]:
    """A server with a secret."""
    with served(book.recording, token=TOKEN) as found:
        yield found


def origin(running: Running) -> str:
    """Return the address of a server without the secret."""
    return running.url.removesuffix(f"/{TOKEN}")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LocalHost:1234", "[::1]:8080"])
def test_names_of_this_machine(running: Running, host: str) -> None:
    assert running.get("/recordings.json", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io", ""]
)
def test_other_names_are_refused(running: Running, book: Made, host: str) -> None:
    for path in ("/", "/recordings.json", f"/data/{book.digest}/info.json", "/openapi.json"):
        answer = running.get(path, headers={"Host": host})
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("the host must be one of")
        assert "localhost" in answer.json()["error"]


def test_every_answer_has_security_headers(running: Running, book: Made) -> None:
    asked = [
        running.get("/"),
        running.get("/nothing"),
        running.get(f"/data/{book.digest}/thumbs/0.bin"),
        running.get("/", headers={"Host": "evil.example"}),
    ]
    for answer in asked:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        policy = dict(
            part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; ")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["connect-src"] == "'self'"
        ancestors = policy["frame-ancestors"].split()
        assert all(
            one == "'self'" or "//localhost:" in one or "//127.0.0.1:" in one for one in ancestors
        )


def test_other_sites_may_not_read(running: Running) -> None:
    answer = running.get("/recordings.json", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_link_opens_the_map(book: Made) -> None:
    with served(book.recording, token=TOKEN) as running:
        assert running.url.endswith(f"/{TOKEN}")
        assert running.get("/").content == VIEWER["index.html"]
        assert running.get("/api/v1/tilesets/").json()["count"] > 0
        # Moved to where a slash is; the secret stays.
        assert running.get("/api/v1/tilesets", follow_redirects=True).status_code == 200
        answer = running.get(f"/data/{book.digest}/thumbs/0.bin")
        assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"


@pytest.mark.parametrize(
    "before", ["", "/", "/wrong/", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/", f"//{TOKEN}/"]
)
@pytest.mark.parametrize(
    "path",
    [
        "",
        "recordings.json",
        "map.js",
        "openapi.json",
        "nothing",
        "api/v1/tilesets/",
        f"?token={TOKEN}",
    ],
)
def test_nothing_without_the_secret(guarded: Running, before: str, path: str) -> None:
    answer = httpx.get(f"{origin(guarded)}/{before}{path}", trust_env=False)
    assert answer.status_code == 403
    assert "whole link" in answer.json()["error"]
    assert answer.headers["Connection"] == "close"
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    "cookie",
    ["other=a{b}c[d]", '="', "regard=1; regard=2", "a=" + "\\" * 15_000, "é=\xff"],
)
def test_cookies_of_others_do_not_matter(guarded: Running, cookie: str) -> None:
    headers = {"Cookie": cookie.encode("latin-1")}
    assert guarded.get("/recordings.json", headers=headers).status_code == 200


def test_any_name_needs_a_secret(book: Made) -> None:
    with served(book.recording, token=TOKEN, hosts=("*",)) as running:
        assert running.get("/", headers={"Host": "laptop.lan:8080"}).status_code == 200
    open_to_all = app([book.recording], hosts=("*",), static=VIEWER)
    with pytest.raises(ValueError, match="needs a token"):
        open_to_all.build_middleware_stack()


@pytest.mark.parametrize("token", ["", "a/b", "a b", "é"])
def test_a_secret_fits_into_an_address(book: Made, token: str) -> None:
    made = app([book.recording], token=token, static=VIEWER)
    with pytest.raises(ValueError, match="token must be one or more letters"):
        made.build_middleware_stack()


def test_the_secret_is_in_no_log(book: Made, caplog: pytest.LogCaptureFixture) -> None:
    with served(book.recording, token=TOKEN) as running:
        running.served.state.viewer = {}
        assert running.get("/").status_code == 500
    assert "'/' failed" in caplog.text
    assert TOKEN not in caplog.text
