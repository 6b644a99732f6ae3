"""Which heads tell most of a token, which word of a text, and which call of a layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.calls import AttentionCall
from regard.calls.call import Stack, stack_of
from regard.calls.tokens import readable
from regard.cli.running import Run

_LOOKED_THROUGH = 64
"""The most words of a text that are looked at to find one that tells something."""


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
    run: Run, calls: Sequence[AttentionCall], token: int, *, head: int | None, top: int
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


@dataclass(frozen=True)
class TellingWord:
    """The word that looks hardest at a single other word.

    Attributes:
        token: its number.
        among: of how many words, if not of all.
        call: the call in which it looks there.
        head: the head; None if no word looks at another.
        key: the number of the other word.
        weight: how much it looks at it.
    """

    token: int
    among: int | None
    call: AttentionCall
    head: int | None
    key: int
    weight: float


def telling_word(run: Run, calls: Sequence[AttentionCall], head: int | None) -> TellingWord:
    """Return the word that looks hardest at a single other word, in any of the heads.

    Of a long text, some words are looked at, as far from each other as they can be: all rows of all
    heads would take as long as the model itself.
    """
    words, tokens = _words(run, calls), run.queries_of(calls[0])
    special = run.special if tokens is run.tokens else run.special_source
    assert special is not None
    asking = _is_word(tokens, special).nonzero().flatten()
    asking = asking if len(asking) else torch.arange(len(tokens))
    some = torch.linspace(0, len(asking) - 1, min(len(asking), _LOOKED_THROUGH)).long()
    queries = asking[some]
    among = len(queries) if len(queries) < len(asking) else None
    best = TellingWord(int(queries[0]), among, calls[0], None, 0, 0.0)
    for call in calls:
        matrix = call.matrix[0] if head is None else call.matrix[0, head : head + 1]
        rows = matrix.rows(queries).float().cpu()
        keys = torch.arange(rows.shape[-1]).expand(len(queries), -1)
        rows = rows.masked_fill(_dull(words, call, queries, keys), 0.0)
        if rows.max() > best.weight:
            number, row, key = (int(x) for x in torch.unravel_index(rows.argmax(), rows.shape))
            place = number if head is None else head
            weight = rows.max().item()
            best = TellingWord(int(queries[row]), among, call, place, key, weight)
    return best


def telling_call(calls: Sequence[AttentionCall]) -> AttentionCall:
    """Return the call of a layer that tells most.

    Of an encoder–decoder, a layer has three, and what it looks at in the source tells most.
    """
    return next((call for call in calls if call.kind == "cross"), calls[0])


def _words(run: Run, calls: Sequence[AttentionCall]) -> dict[Stack, Bool[Tensor, "tokens"]]:
    """Return which keys are words, but for the first, for each stack that calls belong to."""
    words: dict[Stack, Bool[Tensor, "tokens"]] = {}
    for call in calls:
        stack = stack_of(call.module, call.kind)
        if stack not in words:
            words[stack] = _is_word(*run.keys_of(call))
            words[stack][0] = False
    return words


def _dull(
    words: Mapping[Stack, Bool[Tensor, "tokens"]],
    call: AttentionCall,
    queries: Int[Tensor, "queries"],
    keys: Int[Tensor, "*heads queries keys"],
) -> Bool[Tensor, "*heads queries keys"]:
    """Return which keys tell nothing of a query."""
    dull = ~words[stack_of(call.module, call.kind)][keys]
    if call.kind == "self":
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
