"""What a page of effects holds, against effects written out in float64."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.calls import AttentionCall
from regard.calls.outputs import OutputGradient
from tests.views.test_page import edges_in, facts, inflated

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS, DIM = 3, 5
TARGET = "the logit of “b”"


def call_of(length: int, module: str) -> tuple[AttentionCall, Tensor, Tensor]:
    """Return a call with a gradient, its effects, and those of its heads."""
    generator = torch.Generator().manual_seed(length + len(module))
    query, key, value, grad = (
        2 * torch.randn(1, HEADS, length, DIM, generator=generator) for _ in range(4)
    )
    q, k, v, g = (one[0].double() for one in (query, key, value, grad))
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = (q @ k.mT / DIM**0.5).masked_fill(hidden, -torch.inf).softmax(dim=-1)
    output = weights @ v
    effects = weights * (g @ v.mT - (g * output).sum(dim=-1, keepdim=True))
    gradient = OutputGradient(value, output[None].float())
    gradient.add(grad)
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    call = AttentionCall.of(matrix, module, index=0, gradient=gradient)
    return call, effects, (g * output).sum(dim=(1, 2))


def decoded(page: Any, name: str, sections: int, length: int) -> list[Tensor]:
    """Return the effects that are there, as dense matrices."""
    most, found = facts(page)["largest"], []
    for edges in edges_in(inflated(page, name), sections, length, 16):
        dense = torch.zeros(length, length, dtype=torch.float64)
        for (query, key), share in edges.items():
            dense[query, key] = (65535 * share - 32768) / 32767 * most
        found.append(dense)
    return found


def strongest(effects: Tensor, count: int) -> Tensor:
    """Return effects with only the largest of each row, by size, left."""
    keys = effects.abs().topk(min(count, effects.shape[-1]), dim=-1).indices
    return torch.zeros_like(effects).scatter(-1, keys, effects.gather(-1, keys))


@pytest.mark.parametrize("length", [2, 7, 67])
def test_all_heads_and_sums_are_there(length: int) -> None:
    calls, effects, _ = zip(*(call_of(length, f"layers.{n}.attn") for n in range(2)), strict=True)
    page = regard.page(calls, ["t"] * length, effect_on=TARGET, keep=5)
    said = facts(page)
    assert said["effect_on"] == TARGET
    total = effects[0].sum(dim=0) + effects[1].sum(dim=0)
    largest = max(float(total.abs().max()), *(float(one.sum(dim=0).abs().max()) for one in effects))
    largest = max(largest, *(float(one.abs().max()) for one in effects))
    assert said["largest"] == pytest.approx(largest, rel=1e-5)
    # Half a step of rounding, and float32.
    near = {"rtol": 0.0, "atol": largest * (0.5 / 32767 + 1e-5)}
    for number, one in enumerate(effects):
        found = decoded(page, f"edges-{number}", HEADS + 1, length)
        for have, expected in zip(found, [*one, one.sum(dim=0)], strict=True):
            # What is not 0 is written as one step at least.
            assert torch.allclose(have, strongest(expected, 5), rtol=0.0, atol=2 * near["atol"])
    (found,) = decoded(page, "average-0", 1, length)
    assert torch.allclose(found, strongest(total, 5), rtol=0.0, atol=2 * near["atol"])


def test_it_begins_with_the_largest_effect_and_has_those_of_heads() -> None:
    calls, effects, heads = zip(*(call_of(9, f"layers.{n}.attn") for n in range(2)), strict=True)
    said = facts(regard.page(calls, ["t"] * 9, effect_on=TARGET))
    sizes = torch.stack(effects).abs()
    layer, head, token, _ = (int(x) for x in torch.unravel_index(sizes.argmax(), sizes.shape))
    (first,) = said["first"]
    assert (first["layer"], first["head"], first["token"]) == (layer, head, token)
    assert [measure["id"] for measure in said["measures"]] == ["effect"]
    found = torch.tensor([layer["measures"]["effect"] for layer in said["layers"]])
    assert torch.allclose(found.double(), torch.stack(heads), rtol=1e-3)


def test_maps_have_signs_and_one_scale_for_all_heads() -> None:
    calls, effects, _ = zip(*(call_of(130, f"layers.{n}.attn") for n in range(2)), strict=True)
    maps = inflated(regard.page(calls, ["t"] * 130, effect_on=TARGET), "maps")
    maps = maps.reshape(2, HEADS + 1, 44, 44).astype(np.float64)
    sizes = torch.tensor([3.0] * 43 + [1.0])
    padded = torch.nn.functional.pad(torch.stack(effects), (0, 2, 0, 2))
    cells = padded.unflatten(3, (44, 3)).unflatten(2, (44, 3)).sum(dim=(3, 5))
    cells = cells / (sizes[:, None] * sizes)
    shares = cells / cells.abs().max()
    expected = 128 + 127 * shares.sign() * shares.abs().sqrt()
    assert np.abs(maps[:, :HEADS] - expected.numpy()).max() <= 0.52


def test_a_changed_sign_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = sys.modules["regard.views.page.page"]
    written = module.edges

    def turned(*given: Any, **options: Any) -> bytes:
        data = bytearray(written(*given, **options))
        data[9 + 3 * sum(data[:9])] ^= 0x80
        return bytes(data)

    monkeypatch.setattr(module, "edges", turned)
    call, _, _ = call_of(9, "layers.3.attn")
    with pytest.raises(RuntimeError, match="layer 3 has other weights in section 0 than were"):
        regard.page(call, ["t"] * 9, effect_on=TARGET)


def test_calls_without_effects_are_refused() -> None:
    call, _, _ = call_of(4, "layers.0.attn")
    alone = AttentionCall.of(call.matrix, "layers.0.attn", index=0)
    with pytest.raises(
        ValueError, match=r"has no effects: only watch\(model, effects=True\) finds them"
    ):
        regard.page(alone, list("abcd"), effect_on=TARGET)


def test_what_is_common_to_all_values_is_only_rounding() -> None:
    """g·v is much larger than the effects, which have the rounding of g·v − g·o."""
    generator = torch.Generator().manual_seed(0)
    query, key, value, grad = torch.randn(4, 1, HEADS, 70, DIM, generator=generator)
    value = value + 3e3
    gradient = OutputGradient(value, regard.attend(query, key, value, pattern=regard.causal()))
    gradient.add(grad)
    matrix = regard.AttentionMatrix(query, key, pattern=regard.causal())
    call = AttentionCall.of(matrix, "layers.0.attn", index=0, gradient=gradient)
    page = regard.page(call, ["t"] * 70, effect_on=TARGET)
    # Rounding of numbers of that size, in a softmax of 70 keys.
    exact = regard.EffectMatrix(query, key, value, grad, pattern=regard.causal()).dense()[0]
    assert facts(page)["largest"] == pytest.approx(exact.sum(dim=0).abs().max().item(), rel=0.05)
