"""What it costs to patch heads of a real model: SmolLM2-135M, 270 heads, float32, 14 tokens.

    python -m benchmarks.patching [--json] [--only outputs parts peer]

Clean: "When Mary and John went to the store, John gave a drink to". Corrupted: the second "John" is
"Mary". A cell is one forward pass over the corrupted prompt in which a head gets a part of the
clean run, at all positions. Its change is how much the logit of " Mary" less that of " John" rises.

`outputs`: the outputs of all heads, one by one. `parts`: the other parts, of the ten heads whose
outputs change most, and of the three that the guide shows. A cost is processor time over that
of a bare forward pass, run in between.

`peer`: the same cells by the patching of TransformerLens, in a process and an environment of its
own. Keys and values are patched there by key head, and so they are here, by `key_heads=`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from transformers import AutoTokenizer

import regard
from benchmarks._measure import Figure, cpu_timed, in_child, run_parts, versions
from benchmarks._peers import TRANSFORMER_LENS
from benchmarks.watch import loaded
from materials import smollm2
from regard.capture import Seen
from regard.interventions.patch import Part

CLEAN = "When Mary and John went to the store, John gave a drink to"
CORRUPTED = "When Mary and John went to the store, Mary gave a drink to"

NUM_LAYERS, NUM_HEADS, GROUP = 30, 9, 3

SHOWN = ((23, 3), (24, 4), (17, 4))
"""The heads that the table shows."""

PARTS: dict[Part, str] = {"query": "q", "key": "k", "value": "v", "weights": "pattern"}
"""Parts beside the output, and what TransformerLens calls them."""

Head = tuple[int, int]


def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens of both prompts, clean and corrupted."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    clean, corrupted = (torch.tensor([tokenizer(text)["input_ids"]]) for text in (CLEAN, CORRUPTED))
    assert clean.shape == corrupted.shape
    return clean, corrupted


def difference() -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what subtracts the logit of " John" from that of " Mary", both of the last token."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    (mary,), (john,) = (tokenizer(name)["input_ids"] for name in (" Mary", " John"))
    return lambda logits: logits[0, -1, mary] - logits[0, -1, john]


class Runs:
    """The model, its prompts, and what patching a head does to it."""

    def __init__(self) -> None:
        self.model = loaded()
        self.clean, self.corrupted = prompts()
        self._difference = difference()
        with regard.watch(self.model, values=True) as seen:
            self.of_clean = self.of(self.clean)
        self.seen: Seen = seen
        self.of_corrupted = self.of(self.corrupted)

    @torch.no_grad()
    def of(self, tokens: torch.Tensor) -> float:
        """Return the difference of logits."""
        return self._difference(self.model(tokens, use_cache=False).logits).item()

    def bare(self) -> float:
        return self.of(self.corrupted)

    def watched(self) -> float:
        with regard.watch(self.model, values=True):
            return self.of(self.clean)

    def change(self, heads: Sequence[Head], part: Part = "output", of: str = "heads") -> float:
        """Return by how much the difference rises if heads, or key heads, are patched."""
        named: Any = {of: heads}
        with regard.patch(self.model, self.seen, part=part, **named):
            return self.of(self.corrupted) - self.of_corrupted


def shown(change: float) -> float:
    """Return a change to three decimals, a zero without its sign."""
    return round(change, 3) + 0.0


@dataclass(frozen=True)
class Sweep:
    """The outputs of all heads, patched one by one.

    Attributes:
        runs: the model.
        changes: what each does.
        cost: processor time of a cell, over a bare pass.
    """

    runs: Runs
    changes: dict[Head, float]
    cost: float

    def strongest(self, count: int) -> list[Head]:
        return sorted(self.changes, key=lambda head: -abs(self.changes[head]))[:count]


@cache
def sweep() -> Sweep:
    runs = Runs()
    runs.change([(0, 0)])
    changes: dict[Head, float] = {}
    bare, cells = 0.0, 0.0
    for layer in range(NUM_LAYERS):
        bare += cpu_timed(runs.bare)[1] / NUM_LAYERS
        for head in range(NUM_HEADS):
            change, seconds = cpu_timed(lambda at=(layer, head): runs.change([at]))
            changes[layer, head] = change
            cells += seconds / (NUM_LAYERS * NUM_HEADS)
    return Sweep(runs, changes, cells / bare)


def outputs() -> Iterator[Figure]:
    swept = sweep()
    runs, changes = swept.runs, swept.changes
    yield Figure("clean: difference of logits", runs.of_clean, "")
    yield Figure("corrupted: difference of logits", runs.of_corrupted, "")
    for layer, head in dict.fromkeys((*swept.strongest(10), *SHOWN)):
        yield Figure(f"output of {layer}.{head}: change", shown(changes[layer, head]), "")
    strong = sum(abs(change) >= 1 for change in changes.values())
    yield Figure("heads whose output changes it by 1 or more", strong, "")
    off = abs(runs.change([*changes]) + runs.of_corrupted - runs.of_clean)
    yield Figure("outputs of all heads at once: distance from clean", off, "", "≤ 0.001")
    yield Figure("output of a head, over bare", swept.cost, "×")
    rounds = [(cpu_timed(runs.bare)[1], cpu_timed(runs.watched)[1]) for _ in range(5)]
    bare, watched = map(sum, zip(*rounds, strict=True))
    yield Figure("clean run watched with values, over bare", watched / bare, "×")


def parts() -> Iterator[Figure]:
    swept = sweep()
    runs = swept.runs
    for part in PARTS:
        bare, cells = 0.0, 0.0
        for layer, head in dict.fromkeys((*swept.strongest(10), *SHOWN)):
            bare += cpu_timed(runs.bare)[1]
            change, seconds = cpu_timed(lambda at=(layer, head), part=part: runs.change([at], part))
            cells += seconds
            yield Figure(f"{part} of {layer}.{head}: change", shown(change), "")
        yield Figure(f"{part} of a head, over bare", cells / bare, "×")


def peer() -> Iterator[Figure]:
    # 1. Which cells: all outputs, and parts of the strongest heads or of their key heads.
    swept = sweep()
    strongest = swept.strongest(10)
    groups = list(dict.fromkeys((layer, head // GROUP) for layer, head in strongest))
    cells: dict[Part, list[Head]] = {
        part: groups if part in ("key", "value") else strongest for part in PARTS
    }

    # 2. What TransformerLens finds.
    code = f"from benchmarks.patching import show; show({cells})"
    cost, cached, *changes = in_child(code, python=TRANSFORMER_LENS.python)

    # 3. The same here.
    rest = iter(changes)
    off = max(abs(next(rest) - change) for change in swept.changes.values())
    yield Figure("TransformerLens: largest distance of 270 outputs", off, "", "≤ 0.001")
    for part, places in cells.items():
        of = "key_heads" if part in ("key", "value") else "heads"
        ours = [swept.runs.change([place], part, of) for place in places]
        off = max(abs(next(rest) - change) for change in ours)
        what = "key heads" if of == "key_heads" else "heads"
        name = f"TransformerLens, {part}: largest distance of {len(places)} {what}"
        yield Figure(name, off, "", "≤ 0.001")
    yield Figure("TransformerLens: output of a head, over bare", cost, "×")
    yield Figure("TransformerLens: clean run with cache, over bare", cached, "×")


@torch.no_grad()
def show(cells: dict[Part, list[Head]]) -> None:
    """Print the costs of a cell and of a cached run, and all changes, by TransformerLens.

    Args:
        cells: the heads, or key heads, of each part beside the outputs of all.
    """
    import pandas
    from transformer_lens import patching
    from transformer_lens.model_bridge import TransformerBridge

    bridge: Any = TransformerBridge.boot_transformers(str(smollm2()), dtype=torch.float32)
    plain, (clean, corrupted), metric = loaded(), prompts(), difference()
    kept = bridge.run_with_cache(clean)[1]
    before = metric(bridge(corrupted)).item()
    plain(corrupted, use_cache=False)

    def patched(name: str, places: list[Head]) -> list[float]:
        """Return the changes in some cells."""
        of_pattern, of_vector = (
            patching.layer_head_pattern_patch_setter,
            patching.layer_head_vector_patch_setter,
        )
        after = patching.generic_activation_patch(
            bridge,
            corrupted,
            kept,
            metric,
            of_pattern if name == "pattern" else of_vector,
            name,
            index_df=pandas.DataFrame(places, columns=["layer", "head_index"]),
        )
        return (after - before).tolist()

    # Bare passes run between the cells.
    changes: list[float] = []
    bare, seconds, cached = 0.0, 0.0, 0.0
    for layer in range(NUM_LAYERS):
        bare += cpu_timed(lambda: plain(corrupted, use_cache=False))[1] / NUM_LAYERS
        places = [(layer, head) for head in range(NUM_HEADS)]
        of_layer, taken = cpu_timed(lambda places=places: patched("z", places))
        changes += of_layer
        seconds += taken / (NUM_LAYERS * NUM_HEADS)
        if layer % 6 == 0:
            cached += cpu_timed(lambda: bridge.run_with_cache(clean))[1] / 5
    for part, places in cells.items():
        changes += patched(PARTS[part], places)
    print(seconds / bare, cached / bare, *changes)


if __name__ == "__main__":
    run_parts(__doc__, {"outputs": outputs, "parts": parts, "peer": peer}, versions("transformers"))
