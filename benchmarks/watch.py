"""What it costs to see all attention of a real model: SmolLM2-135M, 270 heads, float32.

    python -m benchmarks.watch [--json] [--only forward encoder memory long generation heads lens]

`forward` and `memory`: 2,048 tokens, bare, watched, and the way that one has had so far, eager
attention with `output_attentions=True`, which BertViz needs. `encoder`: MiniLM, 4 × 512 tokens.
`long`: 8,192 tokens of Moby Dick, with five summaries of each head computed on the way.
`generation`: 32 tokens. `heads`: the heads that copy and that look at the previous token. `lens`:
TransformerLens on the same weights, in an environment of its own.

The model's own forward pass is timed without the scores of the next token. Costs over bare of
`forward`, `encoder` and `generation` are processor time.
"""

from pathlib import Path
from time import process_time
from typing import Any

import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, logging

import regard
from benchmarks._measure import Figure, in_child, interleaved, run_parts, versions
from benchmarks._peers import TRANSFORMER_LENS
from examples.known_heads import induction, previous, strongest
from materials import minilm, moby_dick, smollm2
from regard.matrix import Entropy, Offsets, Pool, Received, TopKeys

LENGTH, LONG = 2_048, 8_192
SUMMARIES = (Entropy(), Received(), Offsets(16), Pool(256), TopKeys(8))


def loaded(attention: str = "sdpa") -> Any:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(smollm2(), attn_implementation=attention)
    return model.eval()


def text(length: int, folder: Path | None = None) -> torch.Tensor:
    """Return the first tokens of Moby Dick, [1, length], by the tokenizer in a folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder or smollm2())
    book = moby_dick().read_text(encoding="utf-8")[: 8 * length]
    return torch.tensor([tokenizer(book)["input_ids"][:length]])


@torch.no_grad()
def forward() -> list[Figure]:
    fused, eager, tokens = loaded(), loaded("eager"), text(LENGTH)

    def bare() -> torch.Tensor:
        return fused.model(tokens, use_cache=False).last_hidden_state

    def watched() -> torch.Tensor:
        with regard.watch(fused) as seen:
            output = fused.model(tokens, use_cache=False).last_hidden_state
        seen.verify()
        return output

    def written() -> object:
        return eager.model(tokens, use_cache=False, output_attentions=True).attentions

    same = torch.equal(bare(), watched())
    seconds = interleaved(5, clock=process_time, bare=bare, watched=watched)
    beside = interleaved(2, bare=bare, eager=written)
    return [
        Figure(f"bare forward at {LENGTH:,}", seconds["bare"], "s"),
        Figure(
            "watched, checks included, over bare",
            seconds["watched"] / seconds["bare"],
            "×",
            "≤ 1.1",
        ),
        Figure("eager with output_attentions, over bare", beside["eager"] / beside["bare"], "×"),
        Figure("outputs that are bit by bit the same", float(same), "", "≥ 1"),
    ]


def memory() -> list[Figure]:
    setup = (
        "import torch, regard\n"
        "from benchmarks import watch\n"
        "from benchmarks._measure import peak_bytes\n"
        "model, tokens = watch.loaded({attention!r}), watch.text(watch.LENGTH)\n"
        "before = peak_bytes()\n"
        "with torch.no_grad():\n"
        "    {run}\n"
        "print(peak_bytes() - before)\n"
    )
    runs = {
        "bare": ("sdpa", "found = model.model(tokens, use_cache=False)"),
        "watched, queries and keys kept": (
            "sdpa",
            "with regard.watch(model) as seen: found = model.model(tokens, use_cache=False)",
        ),
        "watched, five summaries kept": (
            "sdpa",
            "with regard.watch(model, keep=watch.SUMMARIES) as seen: "
            "found = model.model(tokens, use_cache=False)",
        ),
        "eager with output_attentions": (
            "eager",
            "found = model.model(tokens, use_cache=False, output_attentions=True)",
        ),
    }
    return [
        Figure(f"memory at {LENGTH:,} beyond the model: {name}", found[0] / 1e9, "GB")
        for name, (attention, run) in runs.items()
        for found in [in_child(setup.format(attention=attention, run=run))]
    ]


@torch.no_grad()
def long() -> list[Figure]:
    model, tokens = loaded(), text(LONG)

    def bare() -> object:
        return model.model(tokens, use_cache=False)

    def watched() -> object:
        with regard.watch(model, keep=SUMMARIES) as seen:
            model.model(tokens, use_cache=False)
        seen.verify()
        return seen

    seconds = interleaved(1, bare=bare, watched=watched)
    dense = 30 * 9 * LONG**2 * 4 / 1e9
    return [
        Figure(f"bare forward at {LONG:,}", seconds["bare"], "s"),
        Figure(
            "watched with five summaries of 270 heads, over bare",
            seconds["watched"] / seconds["bare"],
            "×",
            "≤ 3",
        ),
        Figure(f"the matrices of 270 heads at {LONG:,}, written down", dense, "GB"),
    ]


@torch.no_grad()
def generation() -> list[Figure]:
    model, prompt = loaded(), text(128)
    options = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": False}
    mask = torch.ones_like(prompt)

    def bare() -> object:
        return model.generate(prompt, attention_mask=mask, **options)

    def watched() -> object:
        with regard.watch(model) as seen:
            model.generate(prompt, attention_mask=mask, **options)
        return seen

    seconds = interleaved(3, clock=process_time, bare=bare, watched=watched)
    return [
        Figure("bare generation of 32 tokens", seconds["bare"], "s"),
        Figure("watched, over bare", seconds["watched"] / seconds["bare"], "×", "≤ 1.25"),
    ]


@torch.no_grad()
def encoder() -> list[Figure]:
    model = AutoModel.from_pretrained(minilm()).eval()
    tokens = text(4 * 512, minilm()).reshape(4, 512)

    def bare() -> object:
        return model(tokens)

    def watched() -> object:
        with regard.watch(model) as seen:
            model(tokens)
        return seen

    seconds = interleaved(5, clock=process_time, bare=bare, watched=watched)
    ratio = seconds["watched"] / seconds["bare"]
    return [Figure("MiniLM, 4 × 512 tokens, watched, over bare", ratio, "×", "≤ 1.05")]


def heads() -> list[Figure]:
    model = loaded()
    scores = {"induction": induction(model), "previous-token": previous(model, text(1_000))}
    return [
        Figure(f"{kind} head {layer}.{head}: share of its mass", score, "")
        for kind, found in scores.items()
        for layer, head, score in strongest(found, 3)
    ]


def lens() -> list[Figure]:
    python = TRANSFORMER_LENS.python
    (ratio,) = in_child("from benchmarks.watch import beside_lens; beside_lens()", python=python)
    return [Figure("TransformerLens run_with_cache, weights alone, over bare", ratio, "×")]


@torch.no_grad()
def beside_lens() -> None:
    from transformer_lens.model_bridge import TransformerBridge

    model, tokens = loaded(), text(LENGTH)
    bridge = TransformerBridge.boot_transformers(str(smollm2()), dtype=torch.float32)

    def bare() -> object:
        return model(tokens, use_cache=False)

    def cached() -> object:
        return bridge.run_with_cache(tokens, names_filter=lambda at: at.endswith("hook_pattern"))

    seconds = interleaved(1, bare=bare, cached=cached)
    print(seconds["cached"] / seconds["bare"])


if __name__ == "__main__":
    run_parts(
        __doc__,
        {
            "forward": forward,
            "encoder": encoder,
            "memory": memory,
            "long": long,
            "generation": generation,
            "heads": heads,
            "lens": lens,
        },
        versions("transformers") | {TRANSFORMER_LENS.package: TRANSFORMER_LENS.version},
    )
