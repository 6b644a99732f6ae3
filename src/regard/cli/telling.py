"""Which heads tell most of a token, which token of a text, and which call of a layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.cli.running import Run
from regard.views.pieces import readable
from regard.views.watched import Stack, stack_of
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
    words = _words(run, calls)
    found: list[Telling] = []
    for call in calls:
        rows = call.matrix[0, :, token].float().cpu()
        dull = _dull(words, call, torch.tensor([token]), torch.arange(rows.shape[-1])[None])[0]
        strengths = rows.masked_fill(dull, 0.0).amax(dim=-1).tolist()
        weights, keys = (x.tolist() for x in rows.topk(min(top, rows.shape[-1]), dim=-1))
        found += [
            Telling(call.index, number, keys[number], weights[number], strengths[number])
            for number in (range(len(rows)) if head is None else [head])
        ]
    return sorted(found, key=lambda one: -one.strength)


def telling_token(run: Run, calls: Sequence[Call], head: int | None) -> int:
    """Return the word that looks hardest at a single other word, in any of the heads."""
    words, asking = _words(run, calls), _is_word(run.tokens, run.special)
    best, found = -1.0, 0
    for call in calls:
        top = call.matrix[0].top(8) if head is None else call.matrix[0, head].top(8)
        queries = top.keys.shape[-2]
        keys = top.keys.cpu().reshape(-1, queries, top.keys.shape[-1])
        weights = top.weights.cpu().reshape(keys.shape)
        dull = _dull(words, call, torch.arange(queries), keys.clamp(min=0)) | (keys < 0)
        strengths = weights.masked_fill(dull, 0.0).amax(dim=(0, 2)).masked_fill(~asking, -0.5)
        if strengths.max() > best:
            best, found = strengths.max().item(), int(strengths.argmax())
    return found


def telling_call(calls: Sequence[Call]) -> Call:
    """Return the call of a layer that tells most.

    Of an encoder–decoder, a layer has three, and what it looks at in the source tells most.
    """
    return next((call for call in calls if call.looks == "cross"), calls[0])


def _words(run: Run, calls: Sequence[Call]) -> dict[Stack, Bool[Tensor, "tokens"]]:
    """Return which keys are words, but for the first, for each stack that calls belong to."""
    words: dict[Stack, Bool[Tensor, "tokens"]] = {}
    for call in calls:
        stack = stack_of(call.module, call.looks)
        if stack not in words:
            words[stack] = _is_word(*run.keys_of(call))
            words[stack][0] = False
    return words


def _dull(
    words: Mapping[Stack, Bool[Tensor, "tokens"]],
    call: Call,
    queries: Int[Tensor, "queries"],
    keys: Int[Tensor, "*heads queries keys"],
) -> Bool[Tensor, "*heads queries keys"]:
    """Return which keys tell nothing of a query."""
    dull = ~words[stack_of(call.module, call.looks)][keys]
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
