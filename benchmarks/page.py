"""Measure pages of attention, and BertViz beside them: their size, and how soon they open.

    python -m benchmarks.page [--json] [--only sentence tokens-300 tokens-1000 tokens-8192 bertviz]

`sentence` and `tokens-300`: MiniLM, 72 heads. `tokens-1000` and `tokens-8192`: SmolLM2, 270 heads,
on Moby Dick. Each page is made in a process of its own, after one of the sentence. It is opened
from its file in Chromium with the network off, and counts as open when a token can be chosen.
`bertviz`: its head view of the same, but for the longest, from a model with eager attention as it
needs, in an environment of its own, with up to 12 GB and ten minutes for each. BertViz takes its
scripts from the network; so as not to measure that, they are handed over from npm by the browser's
driver, and once they are not, to see what is left.

The browser is the Chromium of this computer, or what the variable CHROMIUM names.
"""

import math
import re
import resource
import subprocess
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
from benchmarks._measure import Figure, OutOfMemory, in_child, peak_bytes, run_parts, versions
from benchmarks._peers import BERTVIZ
from examples.screenshot import browser, chromium_path
from materials import minilm, moby_dick, smollm2
from materials.cache import kept
from materials.npm import NpmPackage

SENTENCE = "The animal didn't cross the street because it was too tired"
READY = "#regard [role=grid], #regard table"
ROUNDS = 3
PATIENCE = 120.0
"""After so many seconds a page that shows nothing is given up."""

PATIENCE_MAKING = 600.0
"""And after so many one of BertViz that isn't made."""

MOST_MEMORY = 12 * 10**9
"""And at so many bytes."""

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
def measure(make: Callable[[str, int | None, str], None], *page: Any) -> None:
    """Make a page; print its seconds, the gigabytes beyond the model, and a forward's seconds."""
    name, length, path = page
    loaded(name)
    before = peak_bytes()
    make(name, None, path)
    start = time.perf_counter()
    make(*page)
    seconds, num_bytes = time.perf_counter() - start, peak_bytes() - before
    inputs = encoded(name, length)
    start = time.perf_counter()
    run(name, inputs)
    print(seconds, num_bytes / 1e9, time.perf_counter() - start)


def run(name: str, inputs: Any) -> None:
    """Run a model, without a cache."""
    model, _ = loaded(name)
    model(**inputs, **({"use_cache": False} if name == "smollm2" else {}))


def make_ours(name: str, length: int | None, path: str) -> None:
    model, tokenizer = loaded(name)
    inputs = encoded(name, length)
    with regard.watch(model) as seen:
        run(name, inputs)
    regard.page(seen, tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])).save(path)


def make_bertviz(name: str, length: int | None, path: str) -> None:
    from bertviz import head_view

    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    model, tokenizer = loaded(name)
    model.set_attn_implementation("eager")
    inputs = encoded(name, length)
    attention = model(**inputs, output_attentions=True).attentions
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    html = head_view(attention, tokens, html_action="return")
    Path(path).write_text(html.data, encoding="utf-8")


def soonest(path: Path, ready: str, route: Callable[[Route], None] | None = None) -> float:
    """Return the best of three openings; NaN if one never shows anything."""
    found = [opened(path, ready, route)]
    while len(found) < ROUNDS and not math.isnan(found[-1]):
        found.append(opened(path, ready, route))
    return found[-1] if math.isnan(found[-1]) else min(found)


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


def _named(name: str, length: int | None) -> str:
    return f"{name}, {'a sentence' if length is None else f'{length:,} tokens'}"


def _code(maker: str, *page: Any) -> str:
    return f"from benchmarks import page; page.measure(page.{maker}, *{page!r})"


def ours(
    name: str, length: int | None, size: str = "", soon: str = "", ratio: str = ""
) -> Generator[Figure]:
    what = _named(name, length)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        seconds, gigabytes, bare = in_child(_code("make_ours", name, length, str(path)))
        yield Figure(f"{what}: model run and page made", seconds, "s")
        yield Figure(f"{what}: that over a bare forward pass", seconds / bare, "×", ratio)
        yield Figure(f"{what}: memory beyond the model", gigabytes, "GB")
        yield Figure(f"{what}: size of the page", path.stat().st_size / 1e6, "MB", size)
        name = f"{what}: until it is open, network off"
        yield Figure(name, soonest(path, READY), "s", soon)


def bertviz() -> Generator[Figure]:
    python = BERTVIZ.python
    for package in SCRIPTS:  # Not while a page waits for them.
        _unpacked(package)
    for name, length in (("minilm", None), ("minilm", 300), ("smollm2", 1_000)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            note = ""
            try:
                code = _code("make_bertviz", name, length, str(path))
                seconds, gigabytes, _ = in_child(code, PATIENCE_MAKING, python)
            except RuntimeError as error:
                seconds, gigabytes, note = math.nan, math.nan, _why_not(error)
                path.unlink(missing_ok=True)
            what = f"BertViz, {_named(name, length)}"
            yield Figure(f"{what}: model run and page made", seconds, "s", note=note)
            yield Figure(f"{what}: memory beyond the model", gigabytes, "GB")
            yield from _kept_figures(what, path)


def _kept_figures(what: str, path: Path) -> Generator[Figure]:
    """Measure a page of BertViz, if it was made."""
    size, there, alone, note = math.nan, math.nan, math.nan, ""
    if path.exists():
        ready = "[id^=bertviz] svg text"
        size, note = path.stat().st_size / 1e6, f"nothing after {PATIENCE:.0f} s"
        there, alone = soonest(path, ready, from_npm), soonest(path, ready)
    for name, value, unit in (
        ("size of the page", size, "MB"),
        ("until it is open", there, "s"),
        ("until it is open, network off", alone, "s"),
    ):
        yield Figure(f"{what}: {name}", value, unit, note=note if math.isnan(value) else "")


def _why_not(error: RuntimeError) -> str:
    """Say why a page wasn't made, if it was too large; raise any other error again."""
    message = str(error)
    if message.startswith("not finished"):
        return message
    if isinstance(error, OutOfMemory):
        return f"more than {MOST_MEMORY / 1e9:.0f} GB of memory"
    if "signal 9" in message:
        return "more memory than this machine had"
    raise error


def _unpacked(package: NpmPackage) -> Path:
    return kept(package.requirement.replace("@", "-"), package.unpack)


def from_npm(route: Route) -> None:
    for package in SCRIPTS:
        (file,) = package.members.values()
        if file.removesuffix(".js") in route.request.url:
            route.fulfill(path=_unpacked(package) / file)
            return
    route.abort()


def _chromium_version() -> dict[str, str]:
    path = chromium_path()
    if path is None:
        return {}
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return {"Chromium": found[0]} if found else {}


if __name__ == "__main__":
    run_parts(
        __doc__,
        {
            "sentence": partial(ours, "minilm", None, "≤ 0.3", "≤ 3"),
            "tokens-300": partial(ours, "minilm", 300, "", "≤ 3"),
            "tokens-1000": partial(ours, "smollm2", 1_000, "", "≤ 3"),
            "tokens-8192": partial(ours, "smollm2", 8_192, "≤ 30", "≤ 3", "≤ 3"),
            "bertviz": bertviz,
        },
        versions("transformers") | {BERTVIZ.package: BERTVIZ.version} | _chromium_version(),
    )
