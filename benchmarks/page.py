"""Measure pages of attention, and BertViz beside them: their size, and how soon they open.

    python -m benchmarks.page [--json] [--only sentence tokens-300 tokens-1000 tokens-8192 bertviz]

`sentence` and `tokens-300`: MiniLM, 72 heads. `tokens-1000` and `tokens-8192`: SmolLM2, 270 heads,
on Moby Dick. A page is opened from its file in chromium with the network off, and counts as open
when a token can be chosen. `bertviz`: its head view of the same, where it is installed. BertViz
takes its scripts from the network; so as not to measure that, they are handed over from npm by the
browser's driver, and once they are not, to see what is left. It may take 12 GB and ten minutes.

The browser is the Chromium of this computer, or what the variable CHROMIUM names.
"""

import importlib.util
import tempfile
import time
from collections.abc import Callable, Generator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Error, Route
from transformers import AutoModel, AutoTokenizer, logging

import regard
from benchmarks._measure import Figure, in_child, run_parts
from examples.screenshot import browser
from materials import minilm, moby_dick, smollm2
from materials.cache import kept
from materials.npm import NpmPackage
from regard.views import Page

SENTENCE = "The animal didn't cross the street because it was too tired"
READY = "#regard [role=grid], #regard table"
PATIENCE = 60.0
"""After so many seconds a page that shows nothing is given up."""

PATIENCE_MAKING = 600.0
"""And after so many one that isn't made."""

SCRIPTS = (
    NpmPackage(
        "requirejs@2.3.6",
        sha256="1d1a8a5ea21b941f5c80f7caf3ac7f3e1cb8cf2903a706d5c0d15434eaedd326",
        members={"package/require.js": "require.js"},
    ),
    NpmPackage(
        "d3@5.7.0",
        sha256="21f53af012d1c00bc9476fa7c3be902fda809495b001e7f7a9481c744d4fe51e",
        members={"package/dist/d3.min.js": "d3.js"},
    ),
    NpmPackage(
        "jquery@2.1.0",
        sha256="b991ccb0af0fded3fb9e8bb463e06bc500d88145058b4f0703cbbddf0100e8a7",
        members={"package/dist/jquery.min.js": "jquery.js"},
    ),
)
"""What BertViz loads."""


@cache
def loaded(name: str) -> tuple[Any, Any]:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = {"minilm": minilm, "smollm2": smollm2}[name]()
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def encoded(name: str, length: int | None) -> Any:
    """Return the tokens of a text: the sentence, or the beginning of a book."""
    _, tokenizer = loaded(name)
    if length is None:
        return tokenizer(SENTENCE, return_tensors="pt")
    text = moby_dick().read_text(encoding="utf-8")[: 12 * length]
    return tokenizer(text, return_tensors="pt", truncation=True, max_length=length)


@torch.no_grad()
def page_of(name: str, length: int | None) -> Page:
    model, tokenizer = loaded(name)
    inputs = encoded(name, length)
    with regard.watch(model) as seen:
        model(**inputs, **({"use_cache": False} if name == "smollm2" else {}))
    return regard.page(seen, tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]))


def opened(path: Path, ready: str, route: Callable[[Route], None] | None = None) -> float:
    """Return how many seconds it takes until a page shows something; NaN if it never does."""
    with browser() as chromium:
        context = chromium.new_context(offline=route is None)
        if route is not None:
            context.route("http**/*", route)
        page = context.new_page()
        start = time.perf_counter()
        try:
            page.goto(path.as_uri(), timeout=PATIENCE * 1e3)
            page.wait_for_selector(ready, timeout=PATIENCE * 1e3, state="attached")
        except Error:
            return float("nan")
        return time.perf_counter() - start


def ours(
    name: str, length: int | None, size: str = "", soon: str = "", rounds: int = 3
) -> list[Figure]:
    start = time.perf_counter()
    page = page_of(name, length)
    seconds = time.perf_counter() - start
    what = f"{name}, {'a sentence' if length is None else f'{length:,} tokens'}"
    with tempfile.TemporaryDirectory() as folder:
        path = page.save(Path(folder) / "page.html")
        best = min(opened(path, READY) for _ in range(rounds))
        megabytes = path.stat().st_size / 1e6
    return [
        Figure(f"{what}: model run and page made", seconds, "s"),
        Figure(f"{what}: size of the page", megabytes, "MB", size),
        Figure(f"{what}: until it is open, network off", best, "s", soon),
    ]


BERTVIZ = """
import resource, sys, torch
resource.setrlimit(resource.RLIMIT_AS, (12 * 10**9, 12 * 10**9))
from bertviz import head_view
from benchmarks.page import loaded, encoded
name, length, path = sys.argv[1], int(sys.argv[2]) or None, sys.argv[3]
model, tokenizer = loaded(name)
model.set_attn_implementation("eager")
inputs = encoded(name, length)
with torch.no_grad():
    attention = model(**inputs, output_attentions=True).attentions
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
html = head_view(attention, tokens, html_action="return")
open(path, "w", encoding="utf-8").write(html.data)
"""


def bertviz() -> Generator[Figure]:
    if importlib.util.find_spec("bertviz") is None:
        yield Figure("BertViz", float("nan"), "MB", note="pip install bertviz")
        return
    for name, length in (("minilm", None), ("minilm", 300), ("smollm2", 1_000)):
        what = f"BertViz, {name}, {'a sentence' if length is None else f'{length:,} tokens'}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            arguments = ["-", name, str(length or 0), str(path)]
            try:
                in_child(
                    f"import sys; sys.argv = {arguments!r}\n{BERTVIZ}", seconds=PATIENCE_MAKING
                )
            except RuntimeError as error:
                reason = str(error).strip().split("\n")[-1][:60]
                yield Figure(f"{what}: size of the page", float("nan"), "MB", note=reason)
                continue
            yield Figure(f"{what}: size of the page", path.stat().st_size / 1e6, "MB")
            ready = "[id^=bertviz] svg text"
            yield Figure(f"{what}: until it is open", opened(path, ready, _from_npm), "s")
            yield Figure(f"{what}: until it is open, network off", opened(path, ready), "s")


def _from_npm(route: Route) -> None:
    for package in SCRIPTS:
        (file,) = package.members.values()
        if file.removesuffix(".js") in route.request.url:
            name = package.requirement.replace("@", "-")
            route.fulfill(path=kept(name, package.unpack) / file)
            return
    route.abort()


if __name__ == "__main__":
    run_parts(
        __doc__,
        {
            "sentence": partial(ours, "minilm", None, "≤ 0.3", "≤ 3"),
            "tokens-300": partial(ours, "minilm", 300, "", "≤ 3"),
            "tokens-1000": partial(ours, "smollm2", 1_000, "", "≤ 3"),
            "tokens-8192": partial(ours, "smollm2", 8_192, "≤ 30", "≤ 3"),
            "bertviz": bertviz,
        },
    )
