"""Trained models, patched and steered, held against attention that is written out."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM

import regard
from materials import minilm, smollm2
from regard.capture import Seen
from tests.interventions.donor_oracle import DonorOracle
from tests.interventions.oracle import Oracle, with_oracle
from tests.interventions.test_patch import PARTS

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

MODELS = {
    "SmolLM2": (AutoModelForCausalLM, smollm2, "model.layers.{}.self_attn"),
    "MiniLM": (AutoModel, minilm, "encoder.layer.{}.attention.self"),
}
STRENGTHS: list[dict[str, float]] = [{"factor": 5.0}, {"factor": 0.2}, {"share": 0.3}]
SPAN = range(3, 7)


@cache
def models(name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a model, and the same with the attention of the oracle."""
    kind, folder, _ = MODELS[name]
    model = kind.from_pretrained(folder()).eval().to(dtype)
    eager = kind.from_pretrained(folder(), attn_implementation="eager").eval().to(dtype)
    return model, with_oracle(eager)


def texts() -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(1)
    given, other = torch.randint(1_000, 20_000, (2, 1, 24), generator=chance)
    return given, other


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_trained_models(name: str, dtype: torch.dtype) -> None:
    model, eager = models(name, dtype)
    path = MODELS[name][2]
    given, other = texts()
    heads = [(path.format(5), 3), (path.format(2), 1)]
    layers = [path.format(layer) for layer in range(model.config.num_hidden_layers)]
    kept = DonorOracle(eager)
    with torch.no_grad(), kept.running(), regard.watch(model, values=True) as seen:
        eager(other)
        model(other)
    cases: list[tuple[AbstractContextManager[Any], AbstractContextManager[Any]]] = [
        *((_patched(model, seen, heads, part), kept.getting(part, heads)) for part in PARTS),
        *(
            (
                regard.steer(model, SPAN, **strength),
                Oracle(eager, _in_span, layers, **strength).running(),
            )
            for strength in STRENGTHS
        ),
    ]
    with torch.no_grad():
        before = model(given)[0]
        size = float(before.abs().max())
        within = 1e-10 if dtype == torch.float64 else 1e-5 * size
        for ours, truth in cases:
            with truth:
                expected = eager(given)[0]
            with ours:
                output = model(given)[0]
            assert (output - before).abs().max() > 0.1
            torch.testing.assert_close(output, expected, rtol=0, atol=within)


def _patched(model: Any, seen: Seen, heads: Any, part: Any) -> AbstractContextManager[None]:
    return regard.patch(model, seen, heads, part=part)


def _in_span(batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (key >= SPAN.start) & (key < SPAN.stop)
