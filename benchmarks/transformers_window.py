"""A window put on a model that had none: the time of SmolLM2-135M's forward pass.

    python -m benchmarks.transformers_window [--json]

float32, 4,096 tokens, all 30 layers, without the scores of the next token, which are the same work
in each case. `sdpa` is transformers' own attention; `regard` is the same through `regard.hf`.
"""

import torch
from transformers import AutoModelForCausalLM, logging

import regard
import regard.hf
from benchmarks._measure import Figure, interleaved, run_parts, versions
from materials import smollm2

LENGTH = 4_096


@torch.no_grad()
def windows() -> list[Figure]:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(smollm2()).eval()
    tokens = torch.randint(1000, 40_000, (1, LENGTH), generator=torch.Generator().manual_seed(0))

    def sdpa() -> object:
        model.set_attn_implementation("sdpa")
        return model.model(tokens, use_cache=False)

    def dense() -> object:
        return regard.hf.use(model).model(tokens, use_cache=False)

    def windowed() -> object:
        near = regard.window(before=255)
        return regard.hf.use(model, pattern=near).model(tokens, use_cache=False)

    seconds = interleaved(3, sdpa=sdpa, dense=dense, windowed=windowed)
    saved = seconds["sdpa"] / seconds["windowed"]
    return [
        Figure(f"sdpa at {LENGTH:,}", seconds["sdpa"], "s"),
        Figure("regard, over sdpa", seconds["dense"] / seconds["sdpa"], "×"),
        Figure("sdpa, over regard with window(before=255)", saved, "×"),
    ]


if __name__ == "__main__":
    run_parts(__doc__, {"windows": windows}, versions("transformers"))
