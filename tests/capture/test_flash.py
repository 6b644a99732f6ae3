"""Flash attention of transformers: told of order by arguments, and of padding by a row of a mask.

Its kernels run on GPUs alone. What stands for one here computes what its arguments mean, in
float64, under a name by which models know such kernels.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from tests.capture.calls import assert_weights, inputs, softmax_of, watched

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

NAME, SCALE = "flash_attention_own", 0.4


def allowed_pairs(
    queries: int, keys: int, *, looks_back: bool, sliding_window: int | None, lengths: Tensor | None
) -> Tensor:
    """Say pair by pair who may look at whom, [batch or 1, 1, queries, keys].

    The last query stands at the last key. A window of w holds w positions where one looks back
    only, and w − 1 on both sides of oneself elsewhere.
    """
    batch = 1 if lengths is None else len(lengths)
    allowed = torch.zeros(batch, 1, queries, keys, dtype=torch.bool)
    for sequence, row, key in torch.cartesian_prod(*map(torch.arange, (batch, queries, keys))):
        distance = int(row) + keys - queries - int(key)
        near = sliding_window is None or abs(distance) < sliding_window
        there = lengths is None or key < lengths[sequence]
        allowed[sequence, 0, row, key] = near and there and (distance >= 0 or not looks_back)
    return allowed


class Flash(nn.Module):
    """Calls attention as models of transformers do."""

    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(self, *parts: Tensor, mask: Tensor | None, sliding_window: int | None) -> Tensor:
        attention: Any = AttentionInterface().get_interface(NAME, computed)
        return attention(self, *parts, mask, scaling=SCALE, sliding_window=sliding_window)[0]


def computed(
    module: Flash, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    allowed = allowed_pairs(
        query.shape[2],
        key.shape[2],
        looks_back=module.is_causal,
        sliding_window=options["sliding_window"],
        lengths=None if mask is None else mask.sum(dim=1),
    )
    weights = softmax_of(query, key, scale=options["scaling"], allowed=allowed)
    groups = query.shape[1] // key.shape[1]
    return (weights @ value.repeat_interleave(groups, dim=1)).transpose(1, 2), None


@pytest.mark.pairwise
@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 6])])
@pytest.mark.parametrize("sliding_window", [None, 2, 4, 40])
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("queries", [7, 5])
def test_order_is_that_of_the_arguments(
    monkeypatch: pytest.MonkeyPatch,
    queries: int,
    is_causal: bool,
    sliding_window: int | None,
    lengths: Tensor | None,
) -> None:
    monkeypatch.setitem(AttentionInterface._global_mapping, NAME, computed)
    parts = inputs(heads=6, key_heads=3, queries=queries, keys=7)
    mask = None if lengths is None else (torch.arange(7) < lengths[:, None]).long()
    seen = watched(Flash(is_causal=is_causal), *parts, mask=mask, sliding_window=sliding_window)
    allowed = allowed_pairs(
        queries, 7, looks_back=is_causal, sliding_window=sliding_window, lengths=lengths
    )
    assert_weights(seen, softmax_of(parts.query, parts.key, scale=SCALE, allowed=allowed))
