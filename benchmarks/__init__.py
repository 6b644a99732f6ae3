"""One command for all: `python -m benchmarks`; one a benchmark: `python -m benchmarks.NAME`."""

BENCHMARKS: dict[str, str | None] = {
    "attend": None,
    "ring": None,
    "masks": None,
    "transformers_window": None,
    "matrix": None,
    "memory": "docs/images/memory.svg",
    "watch": None,
    "vllm": None,
    "effects": None,
    "patching": None,
    "steer": None,
    "attribute": None,
    "page": None,
    "map": None,
    "atlas": None,
    "rnn_vs_attention": "docs/images/rnn-vs-attention.svg",
}
"""By name, in the order in which they are run and shown: the picture that one draws, if it does."""
