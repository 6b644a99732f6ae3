"""What steering costs, gains and breaks: SmolLM2-135M, 270 heads, float32.

    python -m benchmarks.steer [--json] [--only cost follow long loss]

`cost`: a forward pass of four layers over 4,096 tokens, bare, and with the attention of all heads
to a span of 256 tokens multiplied by 10, or given a share of 0.3; once with a mask of padding, so
that the kernel has no log-sum-exp. Beside it two other ways to do the same: one more column of
queries (1), keys (log 10 / scale) and values (0), and a mask of n × n.

`follow`: 240 prompts of about 240 tokens of Moby Dick with two sentences that contradict each
other, "Harriet bought a violin last week." and the same with another thing. One of the two is
steered, each as often. A prompt follows if that thing is likelier than the other one as the answer.
`long`: 24 prompts of about 2,700 tokens.

`loss`: what steering breaks: the loss of the next token on the last 128 tokens of 16 texts of 256
tokens of Moby Dick, in which 16 of the first 128 tokens are steered.
"""

import math
import random
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AutoTokenizer

import regard
from benchmarks._measure import Figure, interleaved, run_parts, versions
from benchmarks.watch import loaded, text
from materials import moby_dick, smollm2

LENGTH, NUM_LAYERS = 4_096, 4
SPAN, FACTOR = range(1_024, 1_280), 10.0
STRENGTHS: list[dict[str, float]] = [
    {"factor": 1.0},
    {"factor": 3.0},
    {"factor": 10.0},
    {"share": 0.1},
]
THINGS = ("violin", "telescope", "bicycle", "lantern", "piano", "kettle", "hammer", "guitar")
NAMES = ("Harriet", "Oliver", "Matilda", "Edmund")


@torch.no_grad()
def cost() -> list[Figure]:
    model, tokens = loaded(), text(LENGTH)
    del model.model.layers[NUM_LAYERS:]
    padded = torch.ones_like(tokens)
    padded[:, :1] = 0

    def bare(mask: Tensor | None = None) -> Tensor:
        return model.model(tokens, mask, use_cache=False).last_hidden_state

    def steered(mask: Tensor | None = None, **strength: Any) -> Tensor:
        with regard.steer(model, SPAN, **strength):
            return bare(mask)

    def by(attention: Any) -> Tensor:
        AttentionInterface._global_mapping["steered"] = attention
        try:
            model.set_attn_implementation("steered")
            return bare()
        finally:
            model.set_attn_implementation("sdpa")
            del AttentionInterface._global_mapping["steered"]

    expected = by(_by_mask)
    joined = (steered(factor=FACTOR) - expected).abs().max()
    column = (by(_by_column) - expected).abs().max()
    seconds = interleaved(
        3,
        clock=time.process_time,
        bare=bare,
        joined=lambda: steered(factor=FACTOR),
        share=lambda: steered(share=0.3),
        column=lambda: by(_by_column),
        mask=lambda: by(_by_mask),
        bare_padded=lambda: bare(padded),
        padded=lambda: steered(padded, factor=FACTOR),
    )
    return [
        Figure(f"bare forward of {NUM_LAYERS} layers at {LENGTH:,}", seconds["bare"], "s"),
        Figure("factor on all heads, over bare", seconds["joined"] / seconds["bare"], "×", "≤ 1.3"),
        Figure("share on all heads, over bare", seconds["share"] / seconds["bare"], "×", "≤ 1.3"),
        Figure("factor with padding, over bare", seconds["padded"] / seconds["bare_padded"], "×"),
        Figure("by one more column, over bare", seconds["column"] / seconds["bare"], "×"),
        Figure("by a mask of n × n, over bare", seconds["mask"] / seconds["bare"], "×"),
        Figure("largest difference to the mask", float(joined), "", "", f"column: {column:.1e}"),
    ]


def _by_column(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    # The kernel is slow at head sizes that are no multiple of 8.
    query, key, value = (F.pad(x, (0, 8)) for x in (query, key, value))
    query[..., -8] = 1.0
    key[:, :, SPAN.start : SPAN.stop, -8] = math.log(FACTOR) / scaling
    output = F.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=True
    )
    return output[..., :-8].transpose(1, 2).contiguous(), None


def _by_mask(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    numbers = torch.full((query.shape[2], key.shape[2]), -torch.inf).triu(1)
    numbers[:, SPAN.start : SPAN.stop] += math.log(FACTOR)
    output = F.scaled_dot_product_attention(
        query, key, value, numbers[None, None], scale=scaling, enable_gqa=True
    )
    return output.transpose(1, 2).contiguous(), None


def follow() -> Iterator[Figure]:
    return _followed("240 tokens", num_prompts=240, num_sentences=8)


def long() -> Iterator[Figure]:
    return _followed("2,700 tokens", num_prompts=24, num_sentences=100)


@torch.no_grad()
def _followed(length: str, num_prompts: int, num_sentences: int) -> Iterator[Figure]:
    """Yield how many prompts follow the steered one of two sentences."""
    model, tokenizer = loaded(), AutoTokenizer.from_pretrained(smollm2())
    follows = [0] * len(STRENGTHS)
    odds = [0.0] * len(STRENGTHS)
    num_tokens = 0
    for number, (prompt, sentences, things) in zip(
        range(num_prompts), _prompts(num_sentences), strict=False
    ):
        chosen = number % 2
        inputs = tokenizer(prompt, return_tensors="pt")
        num_tokens += inputs["input_ids"].numel()
        answers = [tokenizer(f" {thing}")["input_ids"][0] for thing in things]
        steered = regard.spans(tokenizer, prompt, sentences[chosen])
        for index, strength in enumerate(STRENGTHS):
            with regard.steer(model, steered, **strength):
                logits = model(**inputs, logits_to_keep=1).logits[0, -1]
            gap = float(logits[answers[chosen]] - logits[answers[1 - chosen]])
            follows[index] += gap > 0
            odds[index] += gap / num_prompts
    for strength, count, gap in zip(STRENGTHS, follows, odds, strict=True):
        note = f"log-odds {gap:+.2f}; {num_tokens / num_prompts:.0f} tokens on average"
        name = f"{length}, {_named(strength)}: follow, of {num_prompts}"
        yield Figure(name, float(count), "", "", note)


def _prompts(num_sentences: int) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield prompts, their two sentences that contradict each other, and the things in these."""
    chance = random.Random(1)
    book = moby_dick().read_text(encoding="utf-8")[60_000 : 60_000 + 3_750 * num_sentences]
    stock = [sentence.strip().replace("\n", " ") + "." for sentence in book.split(".")]
    stock = [sentence for sentence in stock if 60 < len(sentence) < 160]
    for name in cycle(NAMES):
        things = chance.sample(THINGS, 2)
        sentences = [f"{name} bought a {thing} last week." for thing in things]
        others = chance.sample(stock, num_sentences)
        others.insert(num_sentences // 4, sentences[0])
        others.insert(num_sentences - num_sentences // 8, sentences[1])
        question = f"Question: What did {name} buy last week?\nAnswer: {name} bought a"
        yield f"{' '.join(others)}\n{question}", sentences, things


@torch.no_grad()
def loss() -> Iterator[Figure]:
    model = loaded()
    # Behind the front matter.
    texts = text(24 * 256)[0].view(24, 256)[8:]
    chance = random.Random(1)
    spans = [range(start, start + 16) for start in (chance.randrange(1, 112) for _ in texts)]
    bare = math.nan
    for strength in STRENGTHS:
        total = 0.0
        for tokens, span in zip(texts, spans, strict=True):
            is_bare = strength == {"factor": 1.0}
            with nullcontext() if is_bare else regard.steer(model, span, **strength):
                logits = model(tokens[None], use_cache=False).logits[0]
            total += float(F.cross_entropy(logits[127:-1], tokens[128:])) / len(texts)
        bare = total if math.isnan(bare) else bare
        name = f"loss on other text, {_named(strength)}, over none"
        yield Figure(name, total - bare, "nats", "", f"{total:.3f} in all")


def _named(strength: dict[str, float]) -> str:
    ((name, number),) = strength.items()
    return f"{name} {number:g}"


if __name__ == "__main__":
    parts = {"cost": cost, "follow": follow, "long": long, "loss": loss}
    run_parts(__doc__, parts, versions("transformers"))
