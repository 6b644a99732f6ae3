"""Effects of heads: gradients against `watch`, ablation against runs with zeroed outputs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.calls.outputs import by_layer
from regard.interventions import heads, verify
from regard.interventions.scaling import Scaling
from regard.interventions.verify import correlation, ranks
from tests.capture.zoo import ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


def model_and_run(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Any]:
    kind = ZOO[name]
    model, given = made(kind).to(dtype).requires_grad_(False), kind.inputs("none")
    output = model(**given)[0]
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    return model, lambda: (model(**given)[0] * weights).sum()


# Grouped heads, cross-attention, one module called twice, weights written out, [query, head] order.
NAMES = ["Llama", "BART", "ALBERT", "BLOOM", "T5", "gpt-oss"]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_that_watch_sees(name: str) -> None:
    model, run = model_and_run(name)
    with regard.watch(model, effects=True) as seen:
        run().backward()
    expected = seen.effects.heads()
    found = heads(model, run)
    assert found.how == expected.how == "gradient"
    assert found.labels == expected.labels
    torch.testing.assert_close(found.effects, expected.effects, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["Llama", "ALBERT", "BLOOM"])
def test_integration_scales_the_outputs_of_one_layer_after_the_other(name: str) -> None:
    """The gradients at 3/4, by difference quotients."""
    model, run = model_and_run(name, torch.float64)
    integrated = heads(model, run, how="integrated")
    assert integrated.how == "integrated"
    with Scaling(model) as scaling, torch.no_grad():
        run()
    (module, scale), *_ = scaling.scales.items()
    step, expected = 1e-3, torch.zeros_like(integrated.effects[0])
    for head in range(len(scale)):
        sides: list[Tensor] = []
        for sign in (1, -1):
            with Scaling(model) as scaling, torch.no_grad():
                scaling.scales[module] = torch.full_like(scale, 0.75)
                scaling.scales[module][head] += sign * step
                sides.append(run())
        expected[head] = (sides[0] - sides[1]) / (2 * step)
    # Norms are computed in float32, and in BLOOM softmax too.
    within = 0.02 if name == "BLOOM" else 1e-3
    assert (integrated.effects[0] - expected).abs().max() <= within * expected.abs().max()


def test_of_a_model_that_is_linear_all_agree() -> None:
    """One layer of attention and nothing behind it: a straight line is the truth."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(12, 3, batch_first=True).double().eval().requires_grad_(False)
    x = torch.randn(2, 7, 12, dtype=torch.float64)

    def run() -> Tensor:
        return model(x, x, x, need_weights=False)[0][0, -1].sum()

    gradient, integrated, exact = (
        heads(model, run, how=how) for how in ("gradient", "integrated", "exact")
    )
    assert exact.effects.shape == (1, 3)
    assert float(exact.effects.abs().min()) > 0
    torch.testing.assert_close(gradient.effects, exact.effects)
    torch.testing.assert_close(integrated.effects, exact.effects)
    # Outputs of heads, without the bias of the projection, add up to the target.
    bias = float(model.out_proj.bias.sum())
    assert abs(float(exact.effects.sum()) - (float(run()) - bias)) < 1e-12
    verified = verify(model, run, gradient, 2)
    assert verified.pearson > 0.999999
    assert "gradient" in repr(verified)
    assert "Spearman 1.00" in repr(verified)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_exact_is_bit_by_bit_what_ablation_gives(name: str) -> None:
    model, run = model_and_run(name)
    found = heads(model, run, how="exact")
    assert found.how == "exact"
    rows = list(found.labels["layers"])
    for layer, head in [*found.strongest(3), *((layer, 1) for layer in rows)]:
        with torch.no_grad():
            before = run()
            with regard.ablate(model, heads=[(layer, head)]):
                after = run()
        row = rows.index(layer)
        assert float(found.effects[row, head]) == float(before.double() - after.double())


def test_only_some_heads() -> None:
    model, run = model_and_run("Llama")
    found = heads(model, run, how="exact", only=[(1, 2)])
    assert found.effects.isnan().sum() == found.effects.numel() - 1
    assert found.strongest(5) == [(1, 2)]


def test_verify() -> None:
    model, run = model_and_run("Llama")
    predicted = heads(model, run)
    found = verify(model, run, predicted, 2, seed=1)
    assert found.heads[:2] == predicted.strongest(2)
    assert len(set(found.heads)) == 4
    exact = heads(model, run, how="exact")
    for place, (layer, head) in enumerate(found.heads):
        assert float(found.exact[place]) == pytest.approx(float(exact.effects[layer, head]))
        assert float(found.predicted[place]) == float(predicted.effects[layer, head])
    assert found.pearson == correlation(found.predicted, found.exact)
    assert repr(found).count("\n") == 5


def test_nothing_is_left_behind() -> None:
    model, run = model_and_run("Llama")
    model.requires_grad_(True)
    before = run()
    for how in ("gradient", "integrated", "exact"):
        heads(model, run, how=how)
    assert torch.equal(run(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_ranks_and_correlations() -> None:
    first, second = torch.tensor([1.0, 2.0, 2.0, 9.0]), torch.tensor([-1.0, 0.5, 0.0, 4.0])
    assert ranks(first).tolist() == [0.0, 1.5, 1.5, 3.0]
    expected = torch.corrcoef(torch.stack([first, second]))[0, 1]
    assert correlation(first, second) == pytest.approx(float(expected))
    assert correlation(first, -first) == pytest.approx(-1.0)


class TestRefusals:
    def test_how(self, unchecked: None) -> None:
        model, run = model_and_run("Llama")
        with pytest.raises(ValueError, match="how must be 'gradient', 'integrated' or 'exact'"):
            heads(model, run, how="magic")  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match='only is for how="exact"'):
            heads(model, run, only=[(0, 0)])
        with pytest.raises(ValueError, match=r"only: the model has no head \(7, 0\)"):
            heads(model, run, how="exact", only=[(7, 0)])

    def test_targets(self, unchecked: None) -> None:
        model, run = model_and_run("Llama")
        with pytest.raises(ValueError, match="run must return one number"):
            heads(model, lambda: run().expand(2))
        with pytest.raises(TypeError, match="run must return a tensor of one number, got float"):
            heads(model, lambda: run().item())
        with pytest.raises(ValueError, match="that depends on the model's attention"):
            heads(model, lambda: run().detach())

    def test_count(self) -> None:
        model, run = model_and_run("Llama")
        with pytest.raises(ValueError, match="count must be at least 1, got 0"):
            verify(model, run, by_layer({0: torch.zeros(4)}, "gradient"), 0)
