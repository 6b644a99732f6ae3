"""Whatever a model does to its memory, a call is shown as it was, or refused."""

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies
from torch import Tensor, nn

import regard
from regard.capture import Overwritten
from tests.capture.calls import Kernel

HEADS, LENGTH, DIM = 2, 7, 4

Expected = list[tuple[Tensor, Tensor]]
"""Of each call its weights, and which pairs its mask allows."""


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Reusing(nn.Module):
    """Makes calls from memory that it writes over between them, and keeps what they must be."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = {
            name: random(1, HEADS, LENGTH, DIM, seed=seed)
            for seed, name in enumerate(("query", "key", "value"))
        }
        self.mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        self.expected: Expected = []

    def forward(self, steps: list[tuple[str, int]]) -> None:
        for step, seed in steps:
            if step == "call":
                self.call()
            elif step == "one pair":
                # Far from the diagonal, and in a row of which the check may know nothing.
                query, key = 1 + seed % (LENGTH - 1), seed % (1 + seed % (LENGTH - 1))
                self.mask[query, key] ^= True
            elif step == "mask":
                other = (random(LENGTH, LENGTH, seed=seed) > 0) | torch.eye(LENGTH).bool()
                self.mask.copy_(other)
            else:
                self.parts[step].copy_(random(1, HEADS, LENGTH, DIM, seed=seed))

    def call(self) -> None:
        F.scaled_dot_product_attention(**self.parts, attn_mask=self.mask)
        with torch._C.DisableTorchFunction():
            query, key = (self.parts[name].double() for name in ("query", "key"))
            scores = (query @ key.mT / DIM**0.5).masked_fill(~self.mask, -torch.inf)
            self.expected.append((scores.softmax(dim=-1), self.mask.clone()))


STEPS = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(["call", "call", "one pair", "mask", "query", "key", "value"]),
        strategies.integers(0, 99),
    ),
    min_size=1,
    max_size=8,
)
LOOKS = strategies.lists(
    strategies.sampled_from(["matrix", "rows", "pickle", "deepcopy", "run again"]), max_size=4
)


def assert_as_it_was(call: Any, weights: Tensor, allowed: Tensor, keep: str) -> None:
    try:
        found = call.matrix.dense().double()
    except Overwritten:
        assert keep == "tensors"
        return
    assert bool((found[..., ~allowed] == 0).all())
    torch.testing.assert_close(found, weights, rtol=1e-5, atol=1e-7)


@given(
    STEPS,
    STEPS,
    LOOKS,
    strategies.sampled_from(["tensors", "copies"]),
    strategies.booleans(),
)
def test_calls_are_as_they_were_or_refused(
    steps: list[tuple[str, int]],
    later: list[tuple[str, int]],
    looks: list[str],
    keep: str,
    inference: bool,
) -> None:
    with torch.inference_mode(inference):
        model = Reusing()
        with regard.watch(model, keep=keep) as seen:
            model([("call", 0), *steps])
        seen.verify()
        held: list[Any] = []
        for look in looks:
            try:
                if look == "matrix":
                    held += [(call.index, call.matrix) for call in seen]
                elif look == "rows":
                    held += [(call.index, call.matrix[:, :, 2:4]) for call in seen]
                elif look == "run again":
                    model(later)
                else:
                    copied = copy.deepcopy if look == "deepcopy" else roundtrip
                    seen = copied(seen)
            except Overwritten:
                assert keep == "tensors"
        expected = model.expected
        for call in seen:
            assert_as_it_was(call, *expected[call.index], keep)
        for index, matrix in held:
            weights = expected[index][0]
            weights = weights if matrix.shape[2] == LENGTH else weights[:, :, 2:4]
            try:
                torch.testing.assert_close(matrix.dense().double(), weights, rtol=1e-5, atol=1e-7)
            except Overwritten:
                assert keep == "tensors"


def roundtrip(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def test_a_mask_that_changes_by_one_pair_in_inference_mode() -> None:
    """PyTorch counts no writes there, and the rows that are compared need not have that pair."""
    with torch.inference_mode():
        model = Reusing()
        with regard.watch(model) as seen:
            model([("call", 0), ("one pair", 5), ("call", 0)])
    assert [str(call.pattern) for call in seen] == ["causal()", f"from_mask({LENGTH} × {LENGTH})"]
    for call, expected in zip(seen, model.expected, strict=True):
        assert_as_it_was(call, *expected, "copies")


def test_a_matrix_that_was_looked_at_is_refused_too() -> None:
    model = Reusing()
    with regard.watch(model) as seen:
        model([("call", 0)])
    matrix = seen[0].matrix
    matrix.dense()
    model([("key", 9)])
    with pytest.raises(Overwritten, match=r"^call 0 "):
        _ = seen[0].matrix
    with pytest.raises(Overwritten, match=r"^key was modified in place"):
        matrix.dense()


def test_copies_of_what_was_seen() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with regard.watch(encoder) as seen:
        encoder(random(1, 5, 8, seed=0).add_(1.0))
    for other in (copy.deepcopy(seen), roundtrip(seen)):
        torch.testing.assert_close(other[0].matrix.dense(), seen[0].matrix.dense())


class Writing(nn.Module):
    """A decoder with a cache: looks at what it has read, and at a source."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross = Kernel(self._own), Kernel(F.scaled_dot_product_attention)
        self.read = self.source = torch.zeros(2, HEADS, 0, DIM)

    @staticmethod
    def _own(query: Tensor, key: Tensor) -> Tensor:
        mask = torch.ones(query.shape[2], key.shape[2]).tril(key.shape[2] - query.shape[2]).bool()
        return F.scaled_dot_product_attention(query, key, key, attn_mask=mask)

    def forward(self, new: Tensor) -> None:
        self.read = torch.cat([self.read, new], dim=2)
        self.own(new, self.read)
        self.cross(new + 1.0, self.source, self.source)


BEGINS = ["another source", "the same source", "read again"]
MOVES = strategies.lists(
    strategies.tuples(
        strategies.sampled_from([*BEGINS, "step", "step", "step", "reorder", "cut"]),
        strategies.integers(1, 99),
    ),
    max_size=9,
)


@given(MOVES, strategies.sampled_from([None, "own", "cross"]))
def test_joined_calls_are_of_one_text(moves: list[tuple[str, int]], where: str | None) -> None:
    """Each call that `stitched` returns is one text, whole, or it refuses."""
    model = Writing()
    texts: list[list[Tensor]] = []
    broken, kept = False, model.read
    with regard.watch(model, where=where) as seen:
        for move, seed in [("another source", 1), *moves]:
            new = random(2, HEADS, 1 + seed % 3, DIM, seed=seed)
            if move == "reorder":
                model.read, model.source = model.read[[1, 0]], model.source[[1, 0]]
                continue
            if move == "cut":
                model.read = model.read[:, :, : max(1, model.read.shape[2] - 1)]
                continue
            if move == "step":
                # Keys that are all alike may as well have been dropped at the beginning.
                latest = kept[:, :, kept.shape[2] - model.read.shape[2] :]
                broken |= not torch.equal(model.read, latest)
            else:
                if move == "another source":
                    model.source = random(2, HEADS, 5, DIM, seed=seed + 500)
                if move == "read again":
                    new = model.read
                model.read = model.read[:, :, :0]
                texts.append([])
            model(new)
            kept = model.read
            texts[-1].append(new)
    try:
        stitched = seen.stitched()
    except ValueError:
        # A text that goes on as it should is refused only if its self-attention was not seen.
        assert broken or where == "cross"
        return
    assert not broken or where == "cross"
    for name in ("own", "cross"):
        if where in (None, name):
            rows = [call.query for call in stitched if call.module == name]
            parts = [[new + (name == "cross") for new in text] for text in texts]
            if where == "cross":
                # Nothing is joined.
                parts = [[new] for text in parts for new in text]
            fed = [torch.cat(text, dim=2) for text in parts]
            assert [x.shape for x in rows] == [x.shape for x in fed]
            assert all(map(torch.equal, rows, fed))
