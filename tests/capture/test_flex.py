"""What `watch` sees of FlexAttention, called as it is, compiled, or in a model that is compiled."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
)

import regard
from regard.capture import Seen
from tests.elsewhere import Elsewhere

pytestmark = pytest.mark.usefixtures("one_thread")

BATCH, HEADS, LENGTH, DIM = 2, 4, 150, 16

CODE = flex_attention.__code__
IDS = torch.stack([torch.arange(LENGTH) // 40, torch.arange(LENGTH) // 61])
SLOPES = torch.tensor([0.4, 0.1, 0.02, 0.005])

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def looks_back(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def looks_back_from_the_end(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query + 100 >= key


def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= key) & (query - key < 37)


def near_and_global(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return ((query - key).abs() < 20) | (key < 5)


def own_document(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return IDS[batch, query] == IDS[batch, key]


def nearer_in_each_head(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= key) & (query - key < 15 * (head + 1))


def linear(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score - SLOPES[head] * (query - key).abs()


def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return 2 * torch.tanh(score / 2)


class Case(NamedTuple):
    """A call of flex_attention.

    Attributes:
        rule: who may look at whom, if not everyone.
        each: which of batch and heads the rule tells apart.
        score: what is done to scores.
        queries: the number of queries.
        key_heads: the number of key heads.
        key_batch: the number of sequences that are looked at: one each, or one for all.
        options: what else it is called with.
    """

    rule: Rule | None = None
    each: str = ""
    score: Callable[..., Tensor] | None = None
    queries: int = LENGTH
    key_heads: int = HEADS
    key_batch: int = BATCH
    options: dict[str, Any] = {}  # noqa: RUF012

    def block_mask(self) -> BlockMask | None:
        if self.rule is None:
            return None
        batch = BATCH if "batch" in self.each else None
        heads = HEADS if "heads" in self.each else None
        return create_block_mask(self.rule, batch, heads, self.queries, LENGTH, device="cpu")

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        chance = torch.Generator().manual_seed(1)
        query = 2 * torch.randn(BATCH, HEADS, self.queries, DIM, generator=chance)
        key, value = torch.randn(
            2, self.key_batch, self.key_heads, LENGTH, DIM, generator=chance
        ).unbind()
        return query, key, value

    def arguments(self) -> dict[str, Any]:
        given = {
            "score_mod": self.score,
            "block_mask": self.block_mask(),
            "enable_gqa": self.key_heads != HEADS or None,
            **self.options,
        }
        return {name: value for name, value in given.items() if value is not None}

    def weights(self) -> Tensor:
        """Return the weights in float64, [BATCH, HEADS, queries, LENGTH]."""
        query, key, _ = (x.double() for x in self.inputs())
        key = key.repeat_interleave(HEADS // self.key_heads, dim=1)
        scores = query @ key.mT * self.options.get("scale", 1 / math.sqrt(DIM))
        shape = (BATCH, HEADS, self.queries, LENGTH)
        where = torch.meshgrid(*(torch.arange(size) for size in shape), indexing="ij")
        if self.score is not None:
            scores = self.score(scores, *where)
        if self.rule is not None:
            scores = scores.masked_fill(~self.rule(*where), -torch.inf)
        return scores.softmax(dim=-1)


CASES = {
    "everyone": Case(),
    "causal": Case(looks_back),
    "window": Case(near),
    "documents": Case(own_document, "batch"),
    "heads": Case(nearer_in_each_head, "heads"),
    "heads and batch": Case(nearer_in_each_head, "batch and heads"),
    "alibi": Case(near, score=linear),
    "grouped": Case(looks_back, score=linear, key_heads=2),
}

MORE = {
    "softcap": Case(score=capped),
    "scale": Case(near_and_global, options={"scale": 0.4}),
    "fewer queries": Case(looks_back_from_the_end, queries=50),
    "log-sum-exp": Case(near, options={"return_aux": AuxRequest(lse=True)}),
    "keys for all sequences": Case(looks_back, "batch", key_batch=1),
}
"""What is not compiled too, because that takes long or torch can't do it on CPUs."""


class Net(nn.Module):
    """A model that is nothing but one call of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)


class Fails(nn.Module):
    """A model that calls flex_attention, and then fails."""

    def forward(self, x: Tensor) -> None:
        flex_attention(x, x, x)
        raise KeyError("failed")


def allowance() -> float:
    """Return how far a weight may be off, as a share of it.

    Scores are below 50, sums of DIM products; rows are sums of LENGTH numbers.
    """
    return torch.finfo(torch.float32).eps * (50 * (DIM + 4) + 20 + 2 * LENGTH)


def assert_weights(seen: Seen, case: Case) -> None:
    found = seen[0].matrix.dense().double()
    torch.testing.assert_close(found, case.weights(), rtol=allowance(), atol=1e-30)


def tensors(output: Any) -> tuple[Tensor, ...]:
    """Return what flex_attention returned, with or without more than its output."""
    return (output[0], output[1].lse) if isinstance(output, tuple) else (output,)


@torch.no_grad()
def look(model: nn.Module, name: str) -> None:
    """Assert that a model computes the same when it is watched, and that its weights are seen."""
    case = (CASES | MORE)[name]
    arguments, options = case.inputs(), case.arguments()
    expected = tensors(model(*arguments, **options))
    with regard.watch(model) as seen:
        found = tensors(model(*arguments, **options))
    assert flex_attention.__code__ is CODE, name
    assert all(map(torch.equal, found, expected)), name
    seen.verify()
    (call,) = seen
    assert call.kernel == "flex_attention", name
    assert call.check.passed, name
    assert (call.heads, call.key_heads) == (HEADS, case.key_heads), name
    assert_weights(seen, case)


def direct(name: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        look(Net(flex_attention), name)


def compiled(*names: str) -> None:
    model = Net(torch.compile(flex_attention))
    for name in names:
        look(model, name)


@torch.no_grad()
def compiled_model(*names: str) -> None:
    """A compiled model is watched uncompiled, so its output is the same but for roundings."""
    model = torch.compile(Net(flex_attention))
    for name in names:
        case = CASES[name]
        arguments, options = case.inputs(), case.arguments()
        before = model(*arguments, **options)
        with regard.watch(model) as seen:
            found = model(*arguments, **options)
        assert flex_attention.__code__ is CODE
        # Two sums of LENGTH products with weights that are a share off, as in `allowance`.
        size = 2 * allowance() * float(arguments[2].abs().max())
        torch.testing.assert_close(found, before, rtol=0, atol=size)
        seen.verify()
        assert_weights(seen, case)
        assert torch.equal(model(*arguments, **options), before), name


def watch_and_fail(x: Tensor, calls: list[int]) -> None:
    model = Fails()
    with regard.watch(model) as seen:
        assert flex_attention.__code__ is not CODE
        try:
            model(x)
        finally:
            calls.append(len(seen))


@torch.no_grad()
def left_as_it_was() -> None:
    """What was changed is changed back, however the block ends, and by the last who leaves."""
    x, key, value = CASES["everyone"].inputs()
    calls: list[int] = []
    with pytest.raises(KeyError):
        watch_and_fail(x, calls)
    assert flex_attention.__code__ is CODE
    assert calls == [1]
    model = Net(flex_attention)
    with pytest.raises(ValueError, match="number of heads"), regard.watch(model):
        model(x, key[:, :2], value[:, :2])
    assert flex_attention.__code__ is CODE
    with regard.watch(model) as outer:
        with regard.watch(model) as inner:
            model(x, key, value)
        assert flex_attention.__code__ is not CODE
        model(x, key, value)
    assert flex_attention.__code__ is CODE
    assert (len(inner), len(outer)) == (1, 2)


@torch.no_grad()
def compiled_blocks() -> None:
    """A mask may be told by its blocks alone: compiled, blocks that aren't listed are left out."""
    model = Net(torch.compile(flex_attention))
    query, key, value = CASES["everyone"].inputs()
    with regard.watch(model) as seen:
        model(query, key, value, block_mask=by_blocks(looks_back, full=True))
    block = torch.arange(LENGTH) // 32
    listed = (block == 0) | ((block == 2) & (block[:, None] >= 2))
    past = torch.arange(LENGTH)[:, None] >= torch.arange(LENGTH)
    allowed = (listed & past) | (block == 4)
    scores = query.double() @ key.double().mT / math.sqrt(DIM)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    found = seen[0].matrix.dense().double()
    torch.testing.assert_close(found, weights, rtol=allowance(), atol=1e-30)
    seen.verify()


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_direct_calls(name: str, elsewhere: Elsewhere) -> None:
    elsewhere(direct, name)


def test_nothing_is_left_behind(elsewhere: Elsewhere) -> None:
    elsewhere(left_as_it_was)


@pytest.mark.slow
def test_compiled_calls(elsewhere: Elsewhere) -> None:
    elsewhere(compiled, *CASES)


@pytest.mark.slow
def test_compiled_calls_with_masks_told_by_their_blocks(elsewhere: Elsewhere) -> None:
    elsewhere(compiled_blocks)


@pytest.mark.slow
def test_compiled_models(elsewhere: Elsewhere) -> None:
    elsewhere(compiled_model, "causal", "alibi")


def by_blocks(rule: Rule | None, *, full: bool) -> BlockMask:
    """Return a mask that is told by its blocks: the first, and from the third row on the third.

    If it has full ones, which the rule isn't asked about, then these are the last of each row.
    """
    num_blocks = -(-LENGTH // 32)
    counts = torch.tensor([1, 1, 2, 2, 2])[None, None].int()
    listed = torch.tensor([0, 2, 1, 3, 4]).expand(1, 1, num_blocks, num_blocks).int().contiguous()
    more = (torch.ones_like(counts), torch.full_like(listed, 4)) if full else (None, None)
    return BlockMask.from_kv_blocks(
        counts, listed, *more, BLOCK_SIZE=32, mask_mod=rule, seq_lengths=(LENGTH, LENGTH)
    )
