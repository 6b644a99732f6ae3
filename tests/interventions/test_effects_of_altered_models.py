"""Effects of models from which heads or pairs are taken away."""

import pytest
import torch

import regard
from tests.interventions.test_heads import model_and_run

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", ["Llama", "BLOOM"])
def test_without_some_pairs(name: str, frozen: bool) -> None:
    """Pairs that are knocked out have no effect, and heads what they do without these pairs."""
    model, run = model_and_run(name)
    model.requires_grad_(not frozen)
    knocked = regard.pairs(keys=[0, 3])
    with regard.knock_out(model, knocked):
        with regard.watch(model, effects=True) as seen:
            run().backward()
        expected = regard.interventions.heads(model, run)
    seen.verify()
    for call in seen:
        effects = call.effects
        assert not effects[:, :, :, 0].any()
        assert not effects[:, :, :, 3].any()
        assert effects.dense().abs().max() > 0
        size = effects.contributions.dense().abs().max()
        assert effects.dense().sum(dim=3).abs().max() <= 1e-5 * size
    found = seen.effects.heads().effects
    torch.testing.assert_close(found, expected.effects, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["Llama", "BART", "BLOOM"])
def test_without_a_head(name: str) -> None:
    """A head that is ablated does nothing, and the others what they do without it."""
    model, run = model_and_run(name)
    layer = regard.interventions.heads(model, run).labels["layers"][0]
    model.requires_grad_(True)
    with regard.watch(model, effects=True) as seen, regard.ablate(model, heads=[(layer, 1)]):
        run().backward()
    found = seen.effects.heads().effects
    assert float(found[0, 1]) == 0.0
    assert bool((found[0, [0, 2, 3]] != 0.0).all())
    assert not seen[0].effects[:, 1].dense().any()


def test_a_head_that_is_ablated_in_a_frozen_model_is_refused() -> None:
    """No gradient reaches what was replaced before anything needed one."""
    model, run = model_and_run("Llama")
    with regard.watch(model, effects=True) as seen, regard.ablate(model, heads=[(0, 1)]):
        run().backward()
    with pytest.raises(ValueError, match="ablated with all parameters frozen"):
        _ = seen[0].effects
    assert seen[1].effects.dense().isfinite().all()
