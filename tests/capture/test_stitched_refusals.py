"""Calls that can't be joined to those of one text, and what is said of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

import regard
from regard.capture import Overwritten
from regard.matrix import Entropy
from tests.capture.generating import (
    LAYERS,
    NEW,
    PROMPT,
    TRANSLATORS,
    generate,
    translator,
    writer,
)
from tests.capture.zoo import tokens

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


class TestRefusals:
    @pytest.mark.parametrize("cache", ["dynamic", "static"])
    def test_beam_search(self, cache: str) -> None:
        model = writer("Llama")
        prompt = tokens(length=PROMPT)
        with regard.watch(model) as seen:
            generate(
                model, prompt, torch.ones_like(prompt), num_beams=4, cache_implementation=cache
            )
        seen.verify()
        with pytest.raises(ValueError, match=r"the cache was reordered, as by beam search"):
            seen.stitched()

    @pytest.mark.parametrize("beams", [1, 4])
    @pytest.mark.parametrize("encoder", [False, True])
    @pytest.mark.parametrize("name", TRANSLATORS)
    def test_cross_attention_alone(self, name: str, encoder: bool, beams: int) -> None:
        """Each call looks at the same keys, whichever text or beam it is of."""
        model = translator(name)
        source = tokens(length=PROMPT)
        cross = ["*.EncDecAttention", "*.encoder_attn"]
        where = [*cross, "encoder", "model.encoder"] if encoder else cross
        with regard.watch(model, where=where) as seen:
            for _ in range(2):
                generate(model, source, torch.ones_like(source), num_beams=beams)
        assert "cross" in {call.kind for call in seen}
        rule = r"may be of different texts: watch the self-attention of that decoder too$"
        with pytest.raises(ValueError, match=rule):
            seen.stitched()

    @pytest.mark.parametrize("name", TRANSLATORS)
    def test_one_layer_with_its_self_attention(self, name: str) -> None:
        model = translator(name)
        source = tokens(length=PROMPT)
        with regard.watch(model, where=["decoder", "model.decoder"]) as seen:
            for _ in range(2):
                generate(model, source, torch.ones_like(source))
        stitched = seen.stitched()
        assert [call.kind for call in stitched] == ["self", "cross"] * LAYERS * 2
        assert {call.queries for call in stitched} == {NEW}

    def test_reductions(self) -> None:
        model = writer("Llama")
        prompt = tokens(length=PROMPT)
        with regard.watch(model, keep=[Entropy()]) as seen:
            generate(model, prompt, torch.ones_like(prompt))
        rule = r"^can't join call 0 \(model.layers.0.self_attn\): .* were not kept$"
        with pytest.raises(ValueError, match=rule):
            seen.stitched()

    def test_calls_that_were_not_understood(self, register: Callable[..., str]) -> None:
        def attention(*arguments: Any, **options: Any) -> Any:
            output, weights = step_by_step(*arguments, **options)
            return output[..., 1:], weights

        class Caller(nn.Module):
            is_causal = True

            def forward(self, x: Tensor) -> Tensor:
                found = AttentionInterface().get_interface(register(attention), attention)
                return found(self, x, x, x, None, scaling=1.0)[0]

        model = Caller()
        with regard.watch(model) as seen:
            model(torch.ones(1, 2, 3, 4))
        with pytest.raises(ValueError, match=r"^can't join call 0 \(the model\)"):
            seen.stitched()

    @pytest.mark.parametrize("wrong", [0, 2, NEW - 1])
    def test_one_wrong_step(self, wrong: int, register: Callable[..., str]) -> None:
        done = {"calls": 0}

        def attention(module: Any, *arguments: Any, **options: Any) -> Any:
            output, weights = step_by_step(module, *arguments, **options)
            if module.layer_idx == 1:
                output = output * 1.1 if done["calls"] == wrong else output
                done["calls"] += 1
            return output, weights

        model = writer("Llama", register(attention))
        prompt = tokens(length=PROMPT)
        with regard.watch(model) as seen:
            generate(model, prompt, torch.ones_like(prompt))
        assert [call.index for call in seen if not call.check.passed] == [wrong * LAYERS + 1]
        stitched = seen.stitched()
        assert [call.check.passed for call in stitched] == [True, False]
        rule = r"^call 1 \(model.layers.1.self_attn\), computed by own, differs from A @ V"
        with pytest.raises(RuntimeError, match=rule):
            stitched.verify()

    def test_queries_that_were_written_over(self) -> None:
        """A model that changes its queries in place after the call."""

        class Rude(nn.Module):
            def forward(self, query: Tensor, past: Tensor, rude: bool) -> Tensor:
                output = F.scaled_dot_product_attention(query, past, past)
                if rude:
                    query.zero_()
                return output

        x = torch.randn(1, 2, 8, 4, generator=torch.Generator().manual_seed(0))
        for rude in (False, True):
            model = Rude()
            with regard.watch(model) as seen:
                model(x[:, :, :6].clone(), x[:, :, :6].clone(), rude)
                for step in (7, 8):
                    model(x[:, :, step - 1 : step].clone(), x[:, :, :step].clone(), rude)
            if rude:
                with pytest.raises(Overwritten, match="was modified in place"):
                    _ = seen.stitched()[0].matrix
            else:
                assert seen.stitched()[0].matrix.shape == (1, 2, 8, 8)


def step_by_step(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as transformers wants it."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    output = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None and query.shape[2] > 1,
        scale=options["scaling"],
    )
    return output.transpose(1, 2), None
