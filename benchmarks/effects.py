"""What it costs to take heads and pairs away from a real model: SmolLM2-135M, 270 heads, float32.

    python -m benchmarks.effects [--json]
                                 [--only ablate knock_out together capture long predictions
                                        peers]

A forward pass over 2,048 tokens, bare, with nine heads ablated, and with 256 keys knocked out of
nine layers, for all their heads and for one; and once more for a single query.

`together`: 512 tokens, watched, and with a head ablated and ten keys knocked out besides.
`capture`: a forward and backward pass over 2,048 tokens, bare and watched with effects. `long`:
8,192 tokens, checkpointed, with the effects of all heads summarised. `predictions`: effects of all
heads on three targets, by gradient and integrated, compared with ablation, which is exact; and the
40 strongest by gradient ablated. A cost is processor time over that of a forward pass.

`peers`: effects of all heads by gradient, as Regard, TransformerLens (attribution patching, with
all pairs) and captum (gradient × activation of the output projections, no pairs) find them, in
longer and longer texts until a process would need more than 16 GB.

The model's own forward pass is timed without the scores of the next token.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from transformers import AutoTokenizer

import regard
from benchmarks._effects_peers import WAYS, found_by
from benchmarks._measure import (
    Figure,
    OutOfMemory,
    cpu_timed,
    in_child,
    interleaved,
    peak_bytes,
    run_parts,
    versions,
)
from benchmarks.watch import LENGTH, LONG, loaded, text
from materials import smollm2
from regard.calls.outputs import HeadEffects
from regard.interventions.verify import correlation, ranks
from regard.matrix import Pool, Received, TopKeys

SHORT = 512
LAYERS = range(10, 19)
KEYS = range(512, 768)


@torch.no_grad()
def ablate() -> list[Figure]:
    model, tokens = loaded(), text(LENGTH)
    heads = [(layer, layer % 9) for layer in LAYERS]
    return _over_bare(model, tokens, {"nine heads ablated": lambda: regard.ablate(model, heads)})


@torch.no_grad()
def knock_out() -> list[Figure]:
    model, tokens = loaded(), text(LENGTH)
    keys, query = regard.pairs(keys=KEYS), regard.pairs(queries=LENGTH - 1, keys=KEYS)
    return _over_bare(
        model,
        tokens,
        {
            "256 keys knocked out of nine layers": lambda: regard.knock_out(
                model, keys, layers=LAYERS
            ),
            "for one head of each": lambda: regard.knock_out(model, keys, layers=LAYERS, heads=[4]),
            "for one query": lambda: regard.knock_out(model, query, layers=LAYERS),
        },
    )


@torch.no_grad()
def together() -> list[Figure]:
    model, tokens = loaded(), text(SHORT)

    @contextmanager
    def all_three() -> Iterator[None]:
        with (
            regard.watch(model),
            regard.ablate(model, heads=[(5, 3)]),
            regard.knock_out(model, regard.pairs(keys=range(100, 110)), layers=[5]),
        ):
            yield

    ways = {
        f"watched at {SHORT}": lambda: regard.watch(model),
        f"watched, a head ablated and ten keys knocked out at {SHORT}": all_three,
    }
    return _over_bare(model, tokens, ways, "≤ 1.08")


def _over_bare(
    model: Any,
    tokens: torch.Tensor,
    ways: dict[str, Callable[[], AbstractContextManager[object]]],
    aim: str = "≤ 1.15",
) -> list[Figure]:
    def bare() -> object:
        return model.model(tokens, use_cache=False)

    def altered(way: Callable[[], AbstractContextManager[object]]) -> Callable[[], object]:
        def run() -> object:
            with way():
                return bare()

        return run

    runs = {name: altered(way) for name, way in ways.items()}
    seconds = interleaved(5, clock=time.process_time, bare=bare, **runs)
    return [
        Figure(f"{name}, over bare", seconds[name] / seconds["bare"], "×", aim) for name in ways
    ]


def capture() -> list[Figure]:
    model, tokens = loaded().requires_grad_(False), text(LENGTH)
    # Something must need a gradient in a bare backward pass too.
    model.enable_input_require_grads()

    def bare() -> torch.Tensor:
        target = model(tokens, use_cache=False, logits_to_keep=1).logits[0, -1, 0]
        target.backward()
        return target.detach()

    def watched() -> torch.Tensor:
        with regard.watch(model, effects=True) as seen:
            target = bare()
        seen.effects.heads()
        return target

    same = torch.equal(bare(), watched())
    seconds = interleaved(3, bare=bare, watched=watched)
    return [
        Figure(f"bare forward and backward at {LENGTH:,}", seconds["bare"], "s"),
        Figure(
            "watched with effects, over bare", seconds["watched"] / seconds["bare"], "×", "≤ 1.1"
        ),
        Figure("targets that are bit by bit the same", float(same), "", "≥ 1"),
    ]


SUMMARIES = (Received(), Pool(256), TopKeys(8))


def summarize_long() -> None:
    """Summarise the effects of all heads at 8,192 tokens, with checkpoints."""
    model, tokens = loaded().requires_grad_(False).train(), text(LONG)
    # Its name in older versions of transformers comes second.
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
    enable = next(getattr(model, name) for name in names if hasattr(model, name))
    enable({"use_reentrant": False})
    before, start = peak_bytes(), time.perf_counter()
    with regard.watch(model, effects=True) as seen:
        model(tokens, use_cache=False, logits_to_keep=1).logits[0, -1, 0].backward()
    captured = time.perf_counter()
    for call in seen:
        call.effects.summarize(*SUMMARIES, progress=False)
    print(captured - start, time.perf_counter() - captured, peak_bytes() - before)


def long() -> list[Figure]:
    code = "from benchmarks.effects import summarize_long; summarize_long()"
    model, tokens = loaded(), text(LONG)
    with torch.no_grad():
        bare = interleaved(1, bare=lambda: model.model(tokens, use_cache=False))["bare"]
    captured, summarised, size = in_child(code)
    return [
        Figure(f"bare forward at {LONG:,}", bare, "s"),
        Figure("effects of all heads captured, checkpointed, over bare", captured / bare, "×"),
        Figure("and summarised, over bare", (captured + summarised) / bare, "×", "≤ 5"),
        Figure("memory beyond the model", size / 1e9, "GB", "≤ 6"),
    ]


def targets(model: Any) -> dict[str, Callable[[], torch.Tensor]]:
    """Return three targets: copying, a fact, and a text."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(1_000, 40_000, (1, 64), generator=generator)
    twice, book = torch.cat([half, half], dim=1), text(256)
    capital = "The capital of"
    facts = f"{capital} France is Paris. {capital} Italy is Rome. {capital} Germany is"
    asked = torch.tensor([tokenizer(facts)["input_ids"]])
    berlin, paris = (tokenizer(word)["input_ids"][0] for word in (" Berlin", " Paris"))

    def mean_log_probability(tokens: torch.Tensor, first: int) -> torch.Tensor:
        logits = model(tokens, use_cache=False).logits[0, first:-1]
        return logits.log_softmax(dim=-1).gather(1, tokens[0, first + 1 :, None]).mean()

    def difference() -> torch.Tensor:
        logits = model(asked, use_cache=False).logits[0, -1]
        return logits[berlin] - logits[paris]

    return {
        "repeated tokens": lambda: mean_log_probability(twice, 64),
        "Berlin over Paris": difference,
        "a text": lambda: mean_log_probability(book, 0),
    }


def predictions() -> Iterator[Figure]:
    model = loaded().requires_grad_(False)
    for name, run in targets(model).items():
        with torch.no_grad():
            bare = min(cpu_timed(run)[1] for _ in range(5))
        exact, seconds = cpu_timed(lambda run=run: _heads(model, run, "exact"))
        yield Figure(f"{name}, exact: cost in forward passes", seconds / bare, "")
        truth = exact.effects.flatten()
        gradient, first = cpu_timed(lambda run=run: _heads(model, run, "gradient"))
        integrated, seconds = cpu_timed(lambda run=run: _heads(model, run, "integrated"))
        predicted = {"gradient": (gradient, first), "integrated": (integrated, seconds)}
        for how, (found, seconds) in predicted.items():
            effects = found.effects.flatten()
            aims = ("≥ 0.85", "≥ 0.8") if how == "integrated" else ("", "")
            spearman = correlation(ranks(effects), ranks(truth))
            yield Figure(f"{name}, {how}: Spearman", spearman, "", aims[0])
            yield Figure(f"{name}, {how}: Pearson", correlation(effects, truth), "")
            recall = _recall(found, exact)
            yield Figure(f"{name}, {how}: recall of the 20 strongest", recall, "", aims[1])
            yield Figure(f"{name}, {how}: cost in forward passes", seconds / bare, "")
        ablated, seconds = cpu_timed(
            lambda run=run, found=gradient: _heads(model, run, "exact", only=found.strongest(40))
        )
        how = "gradient, then 40 heads ablated"
        recall = _recall(ablated, exact)
        yield Figure(f"{name}, {how}: recall of the 20 strongest", recall, "", "≥ 0.8")
        yield Figure(f"{name}, {how}: cost in forward passes", (first + seconds) / bare, "")


def _heads(model: Any, run: Callable[[], torch.Tensor], how: Any, **only: Any) -> HeadEffects:
    return regard.interventions.heads(model, run, how=how, progress=False, **only)


def _recall(found: HeadEffects, exact: HeadEffects) -> float:
    """Return the share of the 20 strongest heads that are among the 20 strongest found."""
    return len(set(found.strongest(20)) & set(exact.strongest(20))) / 20


def peers() -> Iterator[Figure]:
    model = loaded()
    for length in (1_024, 2_048, 4_096, LONG):
        tokens = text(length)
        with torch.no_grad():
            bare = cpu_timed(lambda tokens=tokens: model.model(tokens, use_cache=False))[1]
        ours = None
        for name in WAYS:
            about = f"{length:,} tokens, {name}"
            try:
                seconds, memory, found = found_by(name, length)
            except OutOfMemory:
                yield Figure(f"{about}: cost in forward passes", math.nan, "", "", "over 16 GB")
                continue
            ours = found if ours is None else ours
            like = f"Pearson {correlation(found, ours):.6f} with Regard's"
            yield Figure(f"{about}: cost in forward passes", seconds / bare, "", "", like)
            yield Figure(f"{about}: memory", memory / 1e9, "GB")


if __name__ == "__main__":
    parts = {
        "ablate": ablate,
        "knock_out": knock_out,
        "together": together,
        "capture": capture,
        "long": long,
        "predictions": predictions,
        "peers": peers,
    }
    run_parts(__doc__, parts, versions("transformers"))
