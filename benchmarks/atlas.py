"""Measure surveys: their speed beside the bare model, what each measure costs, workers, memory.

    python -m benchmarks.atlas [--json] [--only rate shares workers memory driver]

`rate`: tokens a second of a survey of SmolLM2 over Moby Dick, beside the same pipeline of Ray Data
with the bare model in it; one worker. `shares`: what each measure adds to a forward pass, alone.
`workers`: two workers beside one. `memory`: of the process that asks, for 10⁵ and 10⁶ tokens, with
a small random model. `driver`: what a unit and a shard cost that process, whatever is in them.
Times are those after the first shard, when the workers are there.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks._measure import Figure, in_child, interleaved, peak_bytes, run_parts, versions
from materials import minilm, moby_dick, smollm2
from regard import watch
from regard.atlas import Loader, pretrained, survey
from regard.atlas.atomic_write import keep
from regard.atlas.cluster import counted_on_ray
from regard.atlas.documents import Document
from regard.atlas.head_statistics import Habits
from regard.atlas.sampled_top_keys import Glimpses
from regard.atlas.shard_windows import Settings
from regard.atlas.surveyor import Surveyor
from regard.atlas.tally import Tally
from regard.atlas.text_windows import text_windows
from regard.atlas.units import UNIT, Unit, find_units, into_shards
from regard.atlas.vocabulary import Vocabulary
from regard.atlas.window import TokenWindow
from regard.matrix import Distance, EffectiveKeys, Entropy, Received

LENGTH = 512
FILES = 9
"""Files of Moby Dick of 8 KiB, each a shard."""


class Bare(Surveyor):
    """A surveyor that runs the model, and looks at nothing."""

    @torch.no_grad()
    def _count_batch(self, windows: Sequence[TokenWindow], tally: Tally) -> None:
        ids = torch.tensor([window.ids for window in windows])
        self._model(input_ids=ids, **self._options)
        tally.add("rows", ids.numel())


def _book(start: int, stop: int) -> str:
    return moby_dick().read_text(encoding="utf-8")[start:stop]


def _files(folder: Path) -> None:
    for number in range(FILES):
        text = _book(100_000 + number * 8192, 100_000 + (number + 1) * 8192)
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")


def _rate(folder: Path, surveyor: type[Surveyor], workers: int) -> float:
    """Return tokens a second, from the first shard that is done to the last."""
    shards = into_shards(find_units(str(folder)), FILES)
    loader = pretrained(str(smollm2()))
    found = counted_on_ray(
        shards,
        loader,
        Settings(LENGTH),
        32,
        workers=workers,
        address=None,
        gpus=0.0,
        surveyor=surveyor,
    )
    times, tokens = [], []
    for _, counted in found:
        times.append(time.perf_counter())
        tokens.append(int(Tally.from_bytes(counted).sums["rows"]))
    # With two workers, the second begins while the first one's shards are already counted.
    return sum(tokens[workers:]) / (times[-1] - times[workers - 1])


def rate_figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        _files(Path(folder))
        rates: dict[str, list[float]] = {"bare": [], "survey": []}
        for _ in range(2):
            rates["bare"].append(_rate(Path(folder), Bare, 1))
            rates["survey"].append(_rate(Path(folder), Surveyor, 1))
    bare, surveyed = max(rates["bare"]), max(rates["survey"])
    yield Figure("rate: bare model in the pipeline", bare, "tokens/s")
    yield Figure("rate: survey", surveyed, "tokens/s")
    yield Figure("rate: survey over bare model", surveyed / bare, "×", "≥ 0.6")


def workers_figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        _files(Path(folder))
        one, two = (
            [_rate(Path(folder), Surveyor, workers) for _ in range(2)] for workers in (1, 2)
        )
    yield Figure("workers: one", max(one), "tokens/s")
    yield Figure("workers: two", max(two), "tokens/s")
    yield Figure("workers: two over one", max(two) / max(one), "×")


def shares_figures() -> Iterator[Figure]:
    loader = pretrained(str(smollm2()))
    model, tokenizer = loader.model(), loader.tokenizer()
    found = text_windows(Document("book", _book(100_000, 120_000)), tokenizer, LENGTH)
    ids = torch.tensor([window.ids for window in found if len(window.ids) == LENGTH][:4])
    kinds = Vocabulary(tokenizer).kinds(ids.tolist())
    glimpses = Glimpses(torch.randint(0, LENGTH, (len(ids), 4)), kinds.separators)
    kept: dict[str, Any] = {
        "watched, queries and keys kept": "tensors",
        "entropy": [Entropy()],
        "effective keys": [EffectiveKeys()],
        "received, sinks": [Received()],
        "offsets, distances": [Distance()],
        "examples": [glimpses],
        "all but examples": [Habits(kinds)],
        "all": [Habits(kinds), glimpses],
    }

    @torch.no_grad()
    def run(keep: Any = None) -> None:
        if keep is None:
            model(input_ids=ids, use_cache=False)
            return
        with watch(model, keep=keep):
            model(input_ids=ids, use_cache=False)

    contenders: dict[str, Callable[[], object]] = {"bare": run}
    contenders |= {name: partial(run, keep) for name, keep in kept.items()}
    times = interleaved(2, **contenders)
    for name in kept:
        share = times[name] / times["bare"] - 1.0
        yield Figure(f"shares: {name}, beyond a forward pass", share, "×")


def _small() -> Loader:
    return Loader("small", _small_model, _small_tokenizer)


def _small_model() -> BertModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    return BertModel(BertConfig(num_hidden_layers=2, **sizes)).eval()


def _small_tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(minilm())


def _survey_small(characters: int) -> None:
    """Survey so much text, and print how many tokens it was and the most memory that it took."""
    with tempfile.TemporaryDirectory() as folder:
        text = _book(0, 1_000_000)
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, start in enumerate(range(0, characters, 1_000_000)):
            part = text[: min(1_000_000, characters - start)]
            (corpus / f"{number}.txt").write_text(part, encoding="utf-8")
        atlas = survey(str(corpus), Path(folder) / "it.atlas", _small(), workers=1, progress=False)
        print(json.dumps([atlas.about.tokens, peak_bytes()]))


def memory_figures() -> Iterator[Figure]:
    found = []
    for characters in (450_000, 4_500_000):
        code = f"from benchmarks.atlas import _survey_small; _survey_small({characters})"
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append(json.loads(ran.stdout.strip().split("\n")[-1]))
    for tokens, memory in found:
        yield Figure(f"memory: of the driver, {tokens:,} tokens", memory / 1e6, "MB")
    yield Figure("memory: ten times the tokens", found[1][1] / found[0][1], "×", "≤ 1.1")


def _units_bytes(count: int) -> None:
    """Print the memory that a process holds for each of so many units."""
    before = peak_bytes()
    units = [
        Unit(f"s3://corpus/part-{n:09d}.txt", f"part-{n:09d}.txt", "text", 0, UNIT, "1763251200.0")
        for n in range(count)
    ]
    into_shards(units)
    print((peak_bytes() - before) / count)


def _seconds_of_rows(count: int) -> None:
    """Print the seconds that Ray Data takes for each row of a pipeline that does nothing."""
    import ray

    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", num_cpus=2)
    start = time.perf_counter()
    rows = ray.data.from_items([{"shard": b"x" * 1000}] * count, override_num_blocks=count)
    rows.context.enable_progress_bars = False
    made = time.perf_counter() - start
    for _ in rows.map(lambda row: row).iter_rows():
        pass
    print(made / count, (time.perf_counter() - start) / count)


def _tally_seconds() -> tuple[float, float, int]:
    """Return the seconds to keep a tally of SmolLM2 and to merge it in the end, and its bytes."""
    loader = pretrained(str(smollm2()))
    tokenizer = loader.tokenizer()
    windows = text_windows(Document("book", _book(100_000, 110_000)), tokenizer, LENGTH)
    tally = Surveyor(loader.model(), tokenizer, batch_size=4, seed=0).count(list(windows))
    with tempfile.TemporaryDirectory() as folder:
        path, merged, data = Path(folder) / "it.npz", Tally(), tally.to_bytes()
        times = interleaved(
            3,
            keep=lambda: keep(path, data),
            merge=lambda: merged.merge(Tally.load(path)),
        )
        return times["keep"], times["merge"], path.stat().st_size


def driver_figures() -> Iterator[Figure]:
    (unit,) = in_child("from benchmarks.atlas import _units_bytes; _units_bytes(1_000_000)")
    yield Figure("driver: memory of a unit", unit, "B")
    code = "from benchmarks.atlas import _seconds_of_rows; _seconds_of_rows(2_000)"
    made, done = in_child(code)
    yield Figure("driver: a shard handed to Ray Data before the first begins", made * 1e3, "ms")
    yield Figure("driver: a shard through Ray Data", done * 1e3, "ms")
    keep, merge, size = _tally_seconds()
    yield Figure("driver: a tally of 270 heads kept", keep * 1e3, "ms")
    yield Figure("driver: a tally of 270 heads merged in the end", merge * 1e3, "ms")
    yield Figure("driver: size of a tally of 270 heads", size / 1e6, "MB")


if __name__ == "__main__":
    run_parts(
        __doc__ or "",
        {
            "rate": rate_figures,
            "shares": shares_figures,
            "workers": workers_figures,
            "memory": memory_figures,
            "driver": driver_figures,
        },
        versions("transformers", "ray", "pyarrow"),
    )
