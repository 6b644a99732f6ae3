"""Two pages in one notebook, executed and exported: both are alive, and neither knows the other."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import Browser

CELL = """
import torch, regard
torch.manual_seed({seed})
x = torch.randn(1, 2, 4, 8)
regard.page(regard.AttentionMatrix(x, x), {tokens!r}, title={title!r})
"""


@pytest.mark.slow
def test_two_pages_in_a_notebook(browser: Browser, tmp_path: Path) -> None:
    texts = [["an", "apple", "a", "day"], ["all", "is", "well", "now"]]
    cells = [
        nbformat.v4.new_code_cell(CELL.format(seed=seed, tokens=tokens, title=f"Page {seed}"))
        for seed, tokens in enumerate(texts)
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    path = tmp_path / "notebook.html"
    path.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")

    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri(), wait_until="domcontentloaded")
    frames = [page.frame_locator(f"iframe[title='Page {number}']") for number in (0, 1)]
    for frame, tokens in zip(frames, texts, strict=True):
        frame.locator("[role=grid]").first.wait_for()
        frame.get_by_role("option", name=tokens[2], exact=True).first.click()
        assert frame.locator("table caption, h2").filter(has_text=tokens[2]).count()
    # What was chosen in one frame is nothing to the other.
    assert not frames[0].locator("table caption, h2").filter(has_text=texts[1][2]).count()
    assert not [error for error in errors if "require" not in error.lower()]
