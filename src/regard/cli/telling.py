"""Which heads tell most of a token, and which token tells most of a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.cli.running import Run
from regard.views.pieces import readable
from regard.watch import Call


@dataclass(frozen=True)
class Telling:
    """Where a token looks in one head.

    Attributes:
        layer: the number of the call.
        head: the number of the head.
        keys: the tokens that it looks at most, by number.
        weights: how much it looks at each.
        strength: how much it looks at the word that tells most.
    """

    layer: int
    head: int
    keys: list[int]
    weights: list[float]
    strength: float


def telling_heads(
    run: Run, calls: Sequence[Call], token: int, *, head: int | None, top: int
) -> list[Telling]:
    """Return where a token looks in each head, those first that look hardest at a single word.

    The first token, special tokens, punctuation, the token itself and those beside it don't count:
    heads that have nothing to do, or only to count, look there.
    """
    found: list[Telling] = []
    for call in calls:
        rows = call.matrix[0, :, token].float().cpu()
        dull = _dull(run, call, torch.tensor([token]), torch.arange(rows.shape[-1])[None])[0]
        strengths = rows.masked_fill(dull, 0.0).amax(dim=-1).tolist()
        weights, keys = (x.tolist() for x in rows.topk(min(top, rows.shape[-1]), dim=-1))
        found += [
            Telling(call.index, number, keys[number], weights[number], strengths[number])
            for number in (range(len(rows)) if head is None else [head])
        ]
    return sorted(found, key=lambda one: -one.strength)


def telling_token(run: Run, calls: Sequence[Call], head: int | None) -> int:
    """Return the word that looks hardest at a single other word, in any of the heads."""
    words = _is_word(run.tokens, run.special)
    best, found = -1.0, 0
    for call in calls:
        top = call.matrix[0].top(8) if head is None else call.matrix[0, head].top(8)
        queries = top.keys.shape[-2]
        keys = top.keys.cpu().reshape(-1, queries, top.keys.shape[-1])
        weights = top.weights.cpu().reshape(keys.shape)
        dull = _dull(run, call, torch.arange(queries), keys.clamp(min=0)) | (keys < 0)
        strengths = weights.masked_fill(dull, 0.0).amax(dim=(0, 2)).masked_fill(~words, -0.5)
        if strengths.max() > best:
            best, found = strengths.max().item(), int(strengths.argmax())
    return found


def _dull(
    run: Run, call: Call, queries: Int[Tensor, "queries"], keys: Int[Tensor, "*heads queries keys"]
) -> Bool[Tensor, "*heads queries keys"]:
    """Return which keys tell nothing of a query."""
    words = _is_word(*run.keys_of(call))
    words[0] = False
    dull = ~words[keys]
    if call.looks == "self":
        dull |= (keys - queries[:, None]).abs() <= 1
    return dull


def _is_word(tokens: Sequence[str], special: Sequence[bool]) -> Bool[Tensor, "tokens"]:
    """Return which tokens have letters or digits, and are part of the text."""
    pairs = zip(readable(tokens), special, strict=True)
    return torch.tensor([not odd and any(map(str.isalnum, piece)) for piece, odd in pairs])


def bar(weight: float, width: int = 10) -> str:
    """Return a weight as a bar of blocks."""
    eighths = round(max(0.0, min(1.0, weight)) * width * 8)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")
