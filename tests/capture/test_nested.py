"""Blocks in blocks: each sees its own, with its own options."""

from contextlib import ExitStack

import pytest
import torch
from torch import nn

import regard
from regard.matrix import Entropy
from tests.capture.traces import HEADS, MODELS, WIDTH, Fault, inputs, llama, run_and_fail, same

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "no_trace")


class TestNested:
    @pytest.mark.parametrize("name", MODELS)
    def test_the_same_model(self, name: str) -> None:
        model, given = MODELS[name]()
        with regard.watch(model) as alone:
            model(**given)
        with regard.watch(model) as outer:
            with regard.watch(model) as inner:
                model(**given)
            model(**given)
        assert len(outer) == 2 * len(inner) == 2 * len(alone) > 0
        for number, call in enumerate(outer):
            expected = alone[number % len(alone)]
            assert (call.module, call.kind) == (expected.module, expected.kind)
            same(call.matrix.dense(), expected.matrix.dense())
        for call, expected in zip(inner, alone, strict=True):
            same(call.matrix.dense(), expected.matrix.dense())

    @pytest.mark.parametrize("first", MODELS)
    @pytest.mark.parametrize("second", MODELS)
    def test_two_models(self, first: str, second: str) -> None:
        (one, one_given), (two, two_given) = MODELS[first](), MODELS[second]()
        with regard.watch(one) as alone:
            one(**one_given)
        with regard.watch(one) as outer, regard.watch(two) as inner:
            one(**one_given)
            two(**two_given)
            one(**one_given)
        assert [call.module for call in outer] == [call.module for call in alone] * 2
        assert len(inner) == 2
        for number, call in enumerate(outer):
            same(call.matrix.dense(), alone[number % 2].matrix.dense())

    @pytest.mark.parametrize("name", MODELS)
    def test_each_has_its_own_options(self, name: str) -> None:
        model, given = MODELS[name]()
        with (
            regard.watch(model, keep="copies") as outer,
            regard.watch(model, where=1, keep=[Entropy()], check=False) as inner,
        ):
            model(**given)
        assert len(outer) == 2
        (call,) = inner
        assert call.module == outer[1].module
        assert call.check.passed is None
        assert outer[1].check.passed
        torch.testing.assert_close(call.results[0].nats, outer[1].matrix.entropy().nats)

    def test_a_part_inside_of_the_whole(self) -> None:
        model, given = llama()
        with regard.watch(model) as whole, regard.watch(model.layers[1]) as part:
            model(**given)
        assert [call.module for call in part] == ["self_attn"]
        same(part[0].matrix.dense(), whole[1].matrix.dense())

    @pytest.mark.parametrize("name", MODELS)
    def test_a_fault_in_the_inner_one(self, name: str) -> None:
        model, given = MODELS[name]()
        with regard.watch(model) as outer:
            with pytest.raises(Fault), regard.watch(model) as inner:
                run_and_fail(model, given)
            model(**given)
        assert (len(outer), len(inner)) == (4, 2)

    @pytest.mark.parametrize("cross", [True, False])
    @pytest.mark.parametrize("averaged", [True, False])
    @pytest.mark.parametrize("need_weights", [True, False])
    def test_multi_head_attention(self, need_weights: bool, averaged: bool, cross: bool) -> None:
        torch.manual_seed(0)
        attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        x, y = inputs(0), inputs(1) if cross else None
        options = {"need_weights": need_weights, "average_attn_weights": averaged}
        # Of the same length, so that only who is asked knows which it is.
        given = (x, x, x) if y is None else (x, y, y)
        expected = attention(*given, average_attn_weights=False)[1]
        with ExitStack() as watching:
            watchers = [watching.enter_context(regard.watch(attention)) for _ in range(3)]
            output, weights = attention(*given, **options)
        torch.testing.assert_close(output, attention(*given)[0])
        if need_weights:
            torch.testing.assert_close(weights, expected.mean(dim=1) if averaged else expected)
        for seen in watchers:
            (call,) = seen
            assert (call.kind, call.batch, call.heads) == ("cross" if cross else "self", 2, HEADS)
            same(call.matrix.dense(), expected)
