"""Measure recordings and the server of their map: sizes, times of tiles at every level, load.

    python -m benchmarks.map [--json] [--only record book long longest load attack first]

`record`: SmolLM2, 30 layers of 9 heads, over 8,192 tokens of Moby Dick: the time to record it,
beside a bare forward pass of the model, and its size. `book`: tiles of that recording. `long`: a
made one of 131,072 tokens, 4 heads of size 64, causal. `longest`: a made one of 1,048,576 tokens,
one head, causal with a window of 4,096. Each tile is asked of the real server in a process of its
own, over HTTP, one after the other, and none twice: the time is what a viewer waits. `load`: 32
viewers pan at random over the book for a minute. `attack`: one viewer does, and once more while 300
strangers send nothing, a byte now and then, too much, or what is wrong. `first`: from going to the
address of the book to its first picture, and until one can zoom, in Chromium with graphics in
software and nothing in its cache; of a server that has just begun, and of one that was asked
before.

Recordings are made once and kept in the cache of materials, but for that of `record`, which is made
anew to see how long it takes; `long` takes some ten minutes and 2 GB.
"""

import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

import regard
from benchmarks._map_attack import attacked
from benchmarks._map_first import Opened, chromium, median, opened
from benchmarks._map_load import load as panned
from benchmarks._measure import Figure, run_parts, versions
from materials import moby_dick, smollm2
from materials.cache import kept
from regard.recording import Recording

TOKENS = 8192
TILES = 40
"""Tiles of each level that are measured, if there are that many."""

OPENINGS = 5
"""So often the map is opened."""

AIM = "≤ 150"


@torch.no_grad()
def _record_book(folder: Path) -> None:
    folder.mkdir()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    place = smollm2()
    model = AutoModelForCausalLM.from_pretrained(place).eval()
    tokenizer = AutoTokenizer.from_pretrained(place)
    text = moby_dick().read_text(encoding="utf-8")
    text = text[text.rindex("CHAPTER 1. Loomings") :]
    encoded = tokenizer(
        text,
        return_tensors="pt",
        return_offsets_mapping=True,
        truncation=True,
        max_length=TOKENS,
    )
    ids = encoded["input_ids"]
    model(ids[:, :64])
    start = time.perf_counter()
    model(ids)
    bare = time.perf_counter() - start
    start = time.perf_counter()
    with regard.watch(model) as seen:
        model(ids)
    offsets = [tuple(one) for one in encoded["offset_mapping"][0].tolist()]
    regard.save(
        seen,
        folder / "it.regard",
        tokens=tokenizer.convert_ids_to_tokens(ids[0]),
        text=text[: offsets[-1][1]],
        offsets=offsets,
        model="SmolLM2-135M",
        title="Moby-Dick; or, The Whale",
        progress=False,
    )
    took = time.perf_counter() - start
    (folder / "seconds.txt").write_text(f"{bare} {took}")


def _make(folder: Path, *, tokens: int, heads: int, pattern: regard.patterns.Pattern) -> None:
    """Record attention that looks at what is like it, and around it."""
    folder.mkdir()
    torch.manual_seed(0)
    topic = torch.randn(1, heads, tokens // 512 + 1, 64).repeat_interleave(512, dim=2)
    base = torch.randn(1, heads, tokens, 64) + 0.7 * topic[:, :, :tokens]
    matrix = regard.AttentionMatrix(base * 1.2, base.roll(1, dims=2), pattern=pattern)
    start = time.perf_counter()
    names = [f"Ġw{number % 5000}" for number in range(tokens)]
    regard.save(matrix, folder / "it.regard", tokens=names, model="made", progress=False)
    (folder / "seconds.txt").write_text(f"0 {time.perf_counter() - start}")


def book() -> Path:
    return kept("recording-book-2", _record_book)


def long() -> Path:
    def make(folder: Path) -> None:
        _make(folder, tokens=131_072, heads=4, pattern=regard.causal())

    return kept("recording-long-2", make)


def longest() -> Path:
    def make(folder: Path) -> None:
        pattern = regard.causal() & regard.window(before=4095)
        _make(folder, tokens=1_048_576, heads=1, pattern=pattern)

    return kept("recording-longest-2", make)


@contextmanager
def served(path: Path, *options: str) -> Generator[tuple[str, psutil.Process]]:
    """Serve a recording in a process of its own; yield its address and the process."""
    code = "from regard.cli import main; main()"
    command = [sys.executable, "-c", code, "map", str(path), "--no-open", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), psutil.Process(process.pid)
        finally:
            process.terminate()


def tile_figures(name: str, folder: Path) -> Iterator[Figure]:
    """Measure tiles of every level, and the memory of the server."""
    recording = regard.open(folder / "it.regard")
    chance = random.Random(0)
    with served(folder / "it.regard") as (url, process), httpx.Client(base_url=url) as client:
        # As a viewer does, who asks for no tile before it knows what there is.
        client.get("recordings.json").raise_for_status()
        client.get(f"data/{recording.digest}/info.json", timeout=60).raise_for_status()
        heads: tuple[int | str, ...] = tuple(range(recording[0].heads))
        for which, label in ((heads, "a head"), (("mean",), "mean of heads")):
            if which == ("mean",) and len(heads) == 1:
                continue
            for level in range(recording.max_zoom(0) + 1):
                times = [
                    _seconds(client, path)
                    for path in _paths(recording, which, level, chance, TILES)
                ]
                yield from _quantiles(f"{name}: tile of {label}, level {level}", times)
        memory = process.memory_info().rss
    aim = "≤ 2" if name == "longest" else ""
    yield Figure(f"{name}: memory of the server afterwards", memory / 1e9, "GB", aim)


def _quantiles(name: str, times: list[float]) -> Iterator[Figure]:
    found = sorted(times)
    note = f"{len(found)} tiles"
    yield Figure(f"{name}, p50", 1e3 * found[len(found) // 2], "ms", "", note)
    slow = found[math.ceil(0.95 * len(found)) - 1]
    yield Figure(f"{name}, p95", 1e3 * slow, "ms", AIM, note)


def _paths(
    recording: Recording,
    heads: tuple[int | str, ...],
    level: int,
    chance: random.Random,
    count: int,
) -> list[str]:
    """Return addresses of different tiles in which there is something, of any call and head."""
    found: dict[str, None] = {}
    cell = 2 ** (recording.full_zoom - level)
    for _ in range(50 * count):
        call = chance.randrange(len(recording))
        y = chance.randrange(2**level)
        x = chance.randint(max(0, y - 4096 // (256 * cell)), y) if chance.random() < 0.5 else y
        if recording[call].pattern.cover(
            range(y * 256 * cell, min((y + 1) * 256 * cell, recording[call].queries)),
            range(x * 256 * cell, min((x + 1) * 256 * cell, recording[call].keys)),
        ):
            pool = chance.choice(("mean", "max"))
            name = f"c{call}-h{chance.choice(heads)}-{pool}"
            found[f"data/{recording.digest}/tiles/{name}/{level}/{x}/{y}.bin"] = None
        if len(found) == count:
            break
    return list(found)


def _seconds(client: httpx.Client, path: str) -> float:
    start = time.perf_counter()
    client.get(path).raise_for_status()
    return time.perf_counter() - start


def _written(name: str, folder: Path) -> Iterator[Figure]:
    size = sum(file.stat().st_size for file in (folder / "it.regard").rglob("*") if file.is_file())
    bare, took = map(float, (folder / "seconds.txt").read_text().split())
    yield Figure(f"{name}: size on disk", size / 1e9, "GB")
    # It may be one that is kept, and was made on another day.
    note = f"on {date.fromtimestamp((folder / 'seconds.txt').stat().st_mtime)}"
    yield Figure(f"{name}: time to record", took, "s", "", note)
    if bare:
        yield Figure(f"{name}: bare forward pass", bare, "s")
        yield Figure(f"{name}: recording over a bare forward pass", took / bare, "×")


def record_figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "book"
        _record_book(folder)
        yield from _written("book", folder)
        error = regard.open(folder / "it.regard").about.error
    yield Figure("book: largest error of a weight", error, "")


def book_figures() -> Iterator[Figure]:
    yield from tile_figures("book", book())


def long_figures() -> Iterator[Figure]:
    yield from _written("long", long())
    yield from tile_figures("long", long())


def longest_figures() -> Iterator[Figure]:
    yield from _written("longest", longest())
    yield from tile_figures("longest", longest())


def load_figures() -> Iterator[Figure]:
    with served(book() / "it.regard") as (url, process):
        before = process.memory_info().rss
        found = panned(url, viewers=32, seconds=60.0)
        after = process.memory_info().rss
    yield Figure("load: requests of 32 viewers in 60 s", found["requests"], "")
    yield Figure("load: errors", found["errors"], "", "≤ 0")
    yield Figure("load: p50", 1e3 * found["p50"], "ms")
    yield Figure("load: p95", 1e3 * found["p95"], "ms")
    yield Figure("load: memory of the server", after / 1e9, "GB", "", f"{before / 1e9:.2f} before")


def attack_figures() -> Iterator[Figure]:
    """Let one viewer pan, and then once more while strangers attack the server."""
    with served(book() / "it.regard", "--host", "0.0.0.0") as (link, _):
        url = urlsplit(link)._replace(netloc=f"127.0.0.1:{urlsplit(link).port}").geturl()
        quiet = panned(url, viewers=1, seconds=60.0)
        with attacked(url):
            found = panned(url, viewers=1, seconds=60.0)
    yield Figure("attack: requests of a viewer in 60 s", found["requests"], "")
    yield Figure("attack: errors", found["errors"], "", "≤ 0")
    yield Figure("attack: p95", 1e3 * found["p95"], "ms", "", f"{1e3 * quiet['p95']:.0f} before")
    yield Figure("attack: p95, of that before", found["p95"] / quiet["p95"], "×", "≤ 3")


def first_figures() -> Iterator[Figure]:
    path = book() / "it.regard"
    with chromium() as browser:
        # The first page of a browser takes longer, whatever is on it.
        with served(path) as (url, _):
            opened(browser, url)
        fresh: list[Opened] = []
        for _ in range(OPENINGS):
            with served(path) as (url, _):
                fresh.append(opened(browser, url))
        with served(path) as (url, _):
            opened(browser, url)
            warm = [opened(browser, url) for _ in range(OPENINGS)]
    for name, found in (("a fresh server", fresh), ("a warm server", warm)):
        note = f"of {OPENINGS}"
        pictures, ready = [one.picture for one in found], [one.ready for one in found]
        yield Figure(f"first: picture from {name}, best", min(pictures), "s", "", note)
        yield Figure(f"first: picture from {name}, median", median(pictures), "s", "≤ 2", note)
        yield Figure(f"first: all of the map from {name}, best", min(ready), "s", "", note)
        yield Figure(f"first: all of the map from {name}, median", median(ready), "s", "", note)


if __name__ == "__main__":
    run_parts(
        __doc__ or "",
        {
            "record": record_figures,
            "book": book_figures,
            "long": long_figures,
            "longest": longest_figures,
            "load": load_figures,
            "attack": attack_figures,
            "first": first_figures,
        },
        versions("transformers", "zarr", "fastapi", "uvicorn"),
    )
