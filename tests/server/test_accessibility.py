"""What axe-core finds on maps: nothing."""

from pathlib import Path

import pytest

from regard.server.publish import publish
from tests.browsing import findings, findings_on_screens
from tests.server.made import Made
from tests.server.viewing import View, Viewing, files_served

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def choose_row(view: View) -> None:
    view.page.mouse.click(*view.place(305, 340))
    view.page.wait_for_selector(".keys button")


def test_a_live_map_has_no_findings(viewing: Viewing, url: str) -> None:
    view = viewing.open(url, "#heads=c0-h1")
    assert findings(view.page) == []
    choose_row(view)
    view.page.select_option("#sorted-by", "looks-from")
    view.page.wait_for_selector(".ranked-head")
    assert findings_on_screens(view.page) == []
    # On a phone, the heads were over the map.
    view.page.click(".show-heads")
    view.page.wait_for_selector(".ranked-head", state="hidden")
    assert findings(view.page) == []


def test_a_published_map_has_no_findings(viewing: Viewing, book: Made, tmp_path: Path) -> None:
    heads = ["0.1", "mean"]
    folder = publish(book.recording, tmp_path / "site", heads=heads, depth=1, progress=False)
    with files_served(folder) as url:
        view = viewing.open(url)
        choose_row(view)
        assert findings_on_screens(view.page) == []
