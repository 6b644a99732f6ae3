"""What a model writes over after its call is noticed, or was copied."""

from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.capture import Overwritten
from regard.matrix import Entropy
from tests.capture.calls import Kernel
from tests.capture.traces import DIM, HEADS, LENGTH, PARTS, random, same

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers", "no_trace")


class Buffered(nn.Module):
    """Writes a part of each call into memory of its own, always the same."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part
        self.register_buffer("room", torch.zeros(2, HEADS, LENGTH, DIM))

    @torch.no_grad()
    def forward(self, *parts: Tensor) -> Tensor:
        given = dict(zip(PARTS, parts, strict=True))
        self.room.copy_(given[self.part])
        given[self.part] = self.room
        return F.scaled_dot_product_attention(**given)


def four(seed: int) -> list[Tensor]:
    return [random(2, HEADS, LENGTH, DIM, seed=3 * seed + part) for part in range(3)]


def by_the_book(query: Tensor, key: Tensor, added: Tensor | float = 0.0) -> Tensor:
    return (query @ key.mT / DIM**0.5 + added).softmax(dim=-1)


class TestWrittenOver:
    @pytest.mark.parametrize("part", ["query", "key"])
    def test_it_is_noticed(self, part: str) -> None:
        model = Buffered(part)
        with regard.watch(model) as seen:
            model(*four(0))
            model(*four(1))
        rule = rf'^call 0 \(the model\): {part} was modified in place.*with keep="copies"$'
        with pytest.raises(Overwritten, match=rule):
            _ = seen[0].matrix
        same(seen[1].matrix.dense(), by_the_book(*four(1)[:2]))

    def test_a_matrix_does_not_need_its_values(self) -> None:
        model = Buffered("value")
        with regard.watch(model, values=True) as seen:
            model(*four(0))
            model(*four(1))
        same(seen[0].matrix.dense(), by_the_book(*four(0)[:2]))
        with pytest.raises(Overwritten, match=r"^call 0 .*: value was modified in place"):
            _ = seen[0].value

    @pytest.mark.parametrize("part", ["query", "key", "value"])
    def test_copies(self, part: str) -> None:
        model = Buffered(part)
        with regard.watch(model, keep="copies") as seen:
            model(*four(0))
            model(*four(1))
        model.room.zero_()
        for number, call in enumerate(seen):
            same(call.matrix.dense(), by_the_book(*four(number)[:2]))

    def test_reductions_are_done_before(self) -> None:
        model = Buffered("key")
        with regard.watch(model, keep=[Entropy()]) as seen:
            model(*four(0))
            model(*four(1))
        for number, call in enumerate(seen):
            a = by_the_book(*four(number)[:2])
            torch.testing.assert_close(call.results[0].nats, -(a * a.log()).sum(dim=-1))

    def test_values_do_not_matter(self) -> None:
        model = Buffered("value")
        with regard.watch(model) as seen:
            model(*four(0))
            model(*four(1))
        same(seen[0].matrix.dense(), by_the_book(*four(0)[:2]))

    def test_inside_inference_mode(self) -> None:
        model = Buffered("key")
        with regard.watch(model) as seen, torch.inference_mode():
            model.room = torch.zeros_like(model.room)
            model(*four(0))
            model(*four(1))
        for number, call in enumerate(seen):
            same(call.matrix.dense(), by_the_book(*four(number)[:2]))

    @pytest.mark.parametrize("keep", ["tensors", "copies"])
    @pytest.mark.parametrize("kernel", ["sdpa", "attend"])
    def test_a_learned_bias(self, kernel: str, keep: str) -> None:
        class Biased(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bias = nn.Parameter(random(1, HEADS, LENGTH, LENGTH, seed=9))

            def forward(self, *parts: Tensor) -> Tensor:
                if kernel == "attend":
                    return regard.attend(*parts, bias=self.bias)
                return F.scaled_dot_product_attention(*parts, attn_mask=self.bias)

        model = Biased()
        with regard.watch(model, keep=keep) as seen:
            model(*four(0))
            with torch.no_grad():
                model.bias.copy_(random(1, HEADS, LENGTH, LENGTH, seed=10))
            model(*four(0))
        first, second = (random(1, HEADS, LENGTH, LENGTH, seed=seed) for seed in (9, 10))
        same(seen[1].matrix.dense(), by_the_book(*four(0)[:2], second))
        # What is not copied may be refused, but must not be wrong.
        with suppress(*([Overwritten] if keep == "tensors" else [])):
            same(seen[0].matrix.dense(), by_the_book(*four(0)[:2], first))

    @pytest.mark.parametrize("inference", [True, False])
    @pytest.mark.parametrize("kind", ["gaps", "stretches"])
    @pytest.mark.parametrize("keep", ["tensors", "copies"])
    def test_a_mask_of_its_own(self, keep: str, kind: str, inference: bool) -> None:
        class Masked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("allowed", torch.empty(LENGTH, LENGTH, dtype=torch.bool))

            def forward(self, allowed: Tensor, *parts: Tensor) -> Tensor:
                self.allowed.copy_(allowed)
                return F.scaled_dot_product_attention(*parts, attn_mask=self.allowed)

        ones = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
        masks = [ones.tril(), ones.triu()]
        if kind == "gaps":
            # No pattern describes these.
            masks = [(random(LENGTH, LENGTH, seed=20 + n) > 0) | ones.diag().diag() for n in (0, 1)]
        with torch.inference_mode(inference):
            model = Masked()
            with regard.watch(model, keep=keep) as seen:
                for allowed in masks:
                    model(allowed, *four(0))
        seen.verify()
        for call, allowed in zip(seen, masks, strict=True):
            added = torch.zeros(LENGTH, LENGTH).masked_fill(~allowed, -torch.inf)
            same(call.matrix.dense(), by_the_book(*four(0)[:2], added))

    def test_weights_of_ones_own(self) -> None:
        """Weights that are dropped in place after the softmax are not those that were seen."""

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            weights = torch.softmax(query @ key.mT / DIM**0.5, dim=-1)
            output = weights @ value
            weights.zero_()
            return output

        kernel = Kernel(attend)
        with regard.watch(kernel, keep="copies") as seen:
            kernel(*four(0))
        same(seen[0].matrix.dense(), by_the_book(*four(0)[:2]))
        with regard.watch(kernel) as seen:
            kernel(*four(0))
        with pytest.raises(Overwritten, match=r"^call 0 "):
            _ = seen[0].matrix


class Attend(nn.Module):
    def forward(self, query: Tensor, key: Tensor, **options: Any) -> Tensor:
        return regard.attend(query, key, key, **options)


@pytest.mark.parametrize(
    "options", [{"positions": 0}, {"positions": 0, "pattern": regard.window(before=3, after=3)}]
)
def test_keys_ahead_of_the_queries_are_those_of_the_call(options: dict[str, Any]) -> None:
    """Later calls share keys with earlier ones only if they have all that these looked at."""
    model = Attend()
    query, first = random(1, 1, 2, 4, seed=1), random(1, 1, 6, 4, seed=2)
    second = torch.cat([first[:, :, :2], random(1, 1, 4, 4, seed=3)], dim=2)
    with regard.watch(model) as seen:
        model(query, first, **options)
        seen[0].matrix.dense()
        model(query, second, **options)
    for call, key in zip(seen, (first, second), strict=True):
        expected = regard.AttentionMatrix(query, key, **options).dense()
        torch.testing.assert_close(call.matrix.dense(), expected)
