"""Who may ask, by which name, with which secret."""

import httpx
import pytest

from regard.server.app import app
from tests.server.made import Made
from tests.server.running import VIEWER, Running, served

TOKEN = "a-secret_that.nobody~guesses"


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
        assert answer.json()["error"].startswith("this server does not answer to the name")
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
        first = running.get("/", params={"token": TOKEN})
        assert first.status_code == 200
        assert 'url=./"' in first.text
        assert first.headers["Cache-Control"] == "no-store"
        cookie = first.headers["Set-Cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        # The client keeps the cookie, as a browser does.
        assert running.get("/").content == VIEWER["index.html"]
        answer = running.get(f"/data/{book.digest}/thumbs/0.bin")
        assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/?token=",
        "/?token=wrong",
        f"/?token={TOKEN}x",
        f"/recordings.json?token={TOKEN}",
        "/map.js",
        "/openapi.json",
        "/nothing",
        "/api/v1/tilesets/",
    ],
)
def test_nothing_without_the_secret(book: Made, path: str) -> None:
    with served(book.recording, token=TOKEN) as running:
        answer = running.get(path)
        assert answer.status_code == 403
        assert "?token=" in answer.json()["error"]
        assert TOKEN not in answer.text


@pytest.mark.parametrize("value", ["", "wrong", f"{TOKEN}x", TOKEN[:-1], "é"])
def test_a_wrong_cookie(book: Made, value: str) -> None:
    with served(book.recording, token=TOKEN) as running:
        entry = httpx.get(f"{running.url}/", params={"token": TOKEN}, trust_env=False)
        (name,) = entry.cookies
        headers = {"Cookie": f"{name}={value}".encode()}
        assert running.get("/", headers=headers).status_code == 403


def test_each_secret_has_a_cookie_of_its_own(book: Made) -> None:
    # Browsers send cookies to all ports of a host: two maps must not lock each other out.
    names = []
    for token in (TOKEN, "another"):
        with served(book.recording, token=token) as running:
            names += list(running.get("/", params={"token": token}).cookies)
    assert len(set(names)) == 2


def test_any_name_needs_a_secret(book: Made) -> None:
    with served(book.recording, token=TOKEN, hosts=("*",)) as running:
        link = httpx.URL(running.url).copy_with(path="/", params={"token": TOKEN})
        assert running.get(str(link), headers={"Host": "laptop.lan:8080"}).status_code == 200
    open_to_all = app([book.recording], hosts=("*",), static=VIEWER)
    with pytest.raises(ValueError, match="needs a token"):
        open_to_all.build_middleware_stack()
