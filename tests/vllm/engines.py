"""Engines of vLLM, and the attention that transformers computes for what they generated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from regard.capture.seen import Seen

Tokens = Sequence[int]

TOLERANCE = 1e-4


def engine(folder: Path, **options: Any) -> Any:
    """Start an engine in this process."""
    from vllm import LLM

    given = {
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 512,
        "block_size": 32,
        "max_num_seqs": 32,
        "skip_tokenizer_init": True,
        "kv_cache_memory_bytes": 1 << 28,
    }
    return LLM(model=str(folder), **{**given, **options})


def generate(llm: Any, prompts: Sequence[Tokens], num_tokens: int = 16, **more: Any) -> list[Any]:
    """Generate the most likely tokens."""
    from vllm import SamplingParams

    given = {"temperature": 0, "ignore_eos": True, "detokenize": False}
    params = SamplingParams(max_tokens=num_tokens, **{**given, **more})
    return llm.generate([{"prompt_token_ids": list(p)} for p in prompts], params, use_tqdm=False)


def generated(outputs: Sequence[Any]) -> list[list[int]]:
    """Return what was generated."""
    return [list(output.outputs[0].token_ids) for output in outputs]


def fed(output: Any) -> list[int]:
    """Return the tokens that were fed to the model: all but the last one."""
    return [*output.prompt_token_ids, *output.outputs[0].token_ids][:-1]


@torch.no_grad()
def largest_difference(seen: Seen, model: Any, output: Any) -> float:
    """Compare every weight of every head of a request with those of transformers' model."""
    tokens = fed(output)
    weights = model(torch.tensor([tokens]), output_attentions=True).attentions
    assert len(seen) == len(weights)
    worst = 0.0
    for call, expected in zip(seen, weights, strict=True):
        first = len(tokens) - call.queries
        assert (call.batch, call.heads, call.keys) == (1, expected.shape[1], len(tokens))
        assert first == output.num_cached_tokens
        worst = max(worst, (call.matrix.dense() - expected[:, :, first:]).abs().max().item())
    return worst


def watched(llm: Any, prompts: Sequence[Tokens], **options: Any) -> tuple[Any, list[Any]]:
    """Generate while the engine is watched."""
    with regard.watch(llm, **options) as seen:
        outputs = generate(llm, prompts)
    return seen, outputs
