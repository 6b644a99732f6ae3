"""Models that compute NaN or nothing are seen as they are."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.matrix import Entropy
from tests.capture.calls import Kernel
from tests.capture.traces import PARTS, inputs, random, stack

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "no_trace")


class TestFaultsOfModels:
    @pytest.mark.parametrize("keep", ["tensors", "copies", [Entropy()]])
    def test_nan(self, keep: Any) -> None:
        model = stack(3)
        nn.init.constant_(model[1].mixed.weight, torch.nan)
        expected = model(inputs())
        with regard.watch(model, keep=keep) as seen:
            found = model(inputs())
        assert torch.equal(found.isnan(), expected.isnan())
        assert [call.check.passed for call in seen] == [True, False, False]
        assert [str(call.check) for call in seen[1:]] == ["✗ NaN"] * 2
        rule = r"^call 1 \(1\), computed by sdpa, returned NaN .*; 1 other calls failed too$"
        with pytest.raises(RuntimeError, match=rule):
            seen.verify()

    @pytest.mark.parametrize("part", ["query", "key", "value"])
    def test_a_single_nan(self, part: str) -> None:
        x = {name: random(1, 2, 5, 4, seed=seed) for seed, name in enumerate(PARTS)}
        # The last row is always compared.
        x[part][0, 1, -1, 2] = torch.nan
        kernel = Kernel(F.scaled_dot_product_attention)
        with regard.watch(kernel) as seen:
            kernel(*x.values())
        with pytest.raises(RuntimeError, match="returned NaN"):
            seen.verify()

    @pytest.mark.parametrize("keep", ["tensors", [Entropy()]])
    @pytest.mark.parametrize("kind", ["plain", "causal", "boolean", "numbers", "attend"])
    @pytest.mark.parametrize(
        ("batch", "queries", "keys"), [(0, 5, 5), (2, 0, 5), (2, 0, 0), (2, 5, 0), (0, 1, 5)]
    )
    def test_zero_length(self, kind: str, batch: int, queries: int, keys: int, keep: Any) -> None:
        query, key = random(batch, 2, queries, 4), random(batch, 2, keys, 4)
        allowed = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
        run = {
            "plain": lambda q, k: F.scaled_dot_product_attention(q, k, k),
            "causal": lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True),
            "boolean": lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=allowed),
            "numbers": lambda q, k: F.scaled_dot_product_attention(
                q, k, k, attn_mask=allowed.float()
            ),
            "attend": lambda q, k: regard.attend(q, k, k),
        }[kind]
        kernel = Kernel(run)
        expected = kernel(query, key)
        with regard.watch(kernel, keep=keep) as seen:
            found = kernel(query, key)
        assert torch.equal(found, expected)
        (call,) = seen
        assert call.problem == ""
        assert (call.batch, call.queries, call.keys) == (batch, queries, keys)
        seen.verify()
        if keep == "tensors":
            assert call.matrix.shape == (batch, 2, queries, keys)
            assert call.matrix.dense().shape == (batch, 2, queries, keys)
