"""One real engine for all tests: vLLM with SmolLM2 on a CPU."""

import os
from typing import Any

import pytest

import materials
from tests.vllm.engines import engine

pytest.importorskip("vllm", reason="vLLM has an environment of its own: .ci/vllm")
# In this process, where it can be watched.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


@pytest.fixture(scope="session")
def smollm2() -> Any:
    """Return an engine with SmolLM2 that computes 96 tokens a step, and so prompts in chunks."""
    return engine(materials.smollm2(), max_num_batched_tokens=96, max_num_seqs=16)


@pytest.fixture(autouse=True)
def _empty_prefix_cache(request: pytest.FixtureRequest) -> None:
    """Begin each test with an empty prefix cache."""
    if "smollm2" in request.fixturenames:
        request.getfixturevalue("smollm2").reset_prefix_cache()
