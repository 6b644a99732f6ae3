"""What is known of SmolLM2, found again: its induction heads are what repeats a text."""

from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM

import regard
from examples.known_heads import induction, strongest
from materials import minilm, smollm2
from regard.patterns import neighbours
from tests.interventions.oracle import Oracle, with_oracle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_transformers")]

LENGTH = 200


@cache
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(smollm2()).eval()


def twice(seed: int) -> Tensor:
    """Return random tokens that come twice, [1, 2 · LENGTH]."""
    chance = torch.Generator().manual_seed(seed)
    once = torch.randint(1_000, 40_000, (1, LENGTH), generator=chance)
    return torch.cat([once, once], dim=1)


@torch.no_grad()
def losses(tokens: Tensor) -> tuple[float, float]:
    """Return the loss on each half; the first token of the second can't be known."""
    logits = model()(tokens).logits[0, :-1]
    loss = F.cross_entropy(logits, tokens[0, 1:], reduction="none")
    return loss[: LENGTH - 1].mean().item(), loss[LENGTH:].mean().item()


def test_induction_heads_are_what_repeats_a_text() -> None:
    tokens = twice(seed=1)
    heads = [(layer, head) for layer, head, _ in strongest(induction(model()), 3)]
    first, second = losses(tokens)
    with regard.ablate(model(), heads):
        first_without, second_without = losses(tokens)
    cost = second_without - second
    assert abs(first_without - first) < 0.05

    chance = torch.Generator().manual_seed(2)
    for _ in range(5):
        drawn = torch.randint(270, (3,), generator=chance).tolist()
        with regard.ablate(model(), [(number // 9, number % 9) for number in drawn]):
            assert cost >= 10 * (losses(tokens)[1] - second)

    # What a head of these looks at: what followed the same token the first time.
    looks = [(query, query - LENGTH + 1) for query in range(LENGTH, 2 * LENGTH)]
    with ExitStack() as knocked_out:
        for layer, head in heads:
            knocked_out.enter_context(
                regard.knock_out(model(), neighbours(looks), layers=[layer], heads=[head])
            )
        _, second_knocked = losses(tokens)
    assert second_knocked - second >= 0.7 * cost


def oracles(folder: Any, kind: Any) -> Any:
    return with_oracle(kind.from_pretrained(folder, attn_implementation="eager").eval())


@pytest.mark.parametrize("name", ["SmolLM2", "MiniLM"])
def test_held_against_attention_written_out(name: str) -> None:
    from transformers import AutoModel

    folder, layer, length = {
        "SmolLM2": (smollm2(), "layers.12.self_attn", 128),
        "MiniLM": (minilm(), "encoder.layer.3.attention.self", 96),
    }[name]
    fused, eager = AutoModel.from_pretrained(folder).eval(), oracles(folder, AutoModel)
    tokens = torch.randint(1_000, 20_000, (2, length), generator=torch.Generator().manual_seed(3))
    pattern = regard.pairs(queries=slice(40, None), keys=range(10, 30))

    def forbids(batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= 40) & (key >= 10) & (key < 30)

    with torch.no_grad():
        before = fused(tokens)[0]
        with Oracle(eager, forbids, [layer], [0, 5], ablated=[(layer, 1)]).running():
            expected = eager(tokens)[0]
        with (
            regard.knock_out(fused, pattern, layers=[layer], heads=[0, 5]),
            regard.ablate(fused, [(layer, 1)]),
        ):
            found = fused(tokens)[0]
    assert (found - before).abs().max() > 1e-2
    scale = expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * max(1.0, scale))
