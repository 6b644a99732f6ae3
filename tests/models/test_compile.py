"""Whole models go through `torch.compile`."""

from typing import Any

import pytest
import torch

from regard.models import TextDecoder
from tests.elsewhere import Elsewhere

VOCABULARY, LENGTH = 37, 13

CASES: dict[str, dict[str, Any]] = {
    "GPT-2": {},
    "Llama": {
        "position_encoding": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "projection_bias": False,
    },
}
BACKENDS = {"GPT-2": "aot_eager", "Llama": "inductor"}
"""One is only traced, which takes a fraction of the time."""


@torch.no_grad()
def compare(name: str) -> None:
    """Assert that a decoder compiles to one graph, which gives what it gave before."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TextDecoder(VOCABULARY, 24, 2, 6, num_key_heads=2, **CASES[name]).double()
    compiled = torch.compile(model, fullgraph=True, backend=BACKENDS[name])
    # The second length must not be taken for the first.
    for length in (LENGTH, LENGTH, 2 * LENGTH + 1):
        tokens = torch.randint(VOCABULARY, (3, length))
        expected = model(tokens)
        # Two blocks of sums over up to 96 terms each, which may be summed in another order.
        share = 1e4 * torch.finfo(torch.float64).eps
        limit = share * float(expected.abs().max())
        torch.testing.assert_close(compiled(tokens), expected, rtol=0, atol=limit)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_compiled_decoder_gives_the_same(name: str, elsewhere: Elsewhere) -> None:
    elsewhere(compare, name)
