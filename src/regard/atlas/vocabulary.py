"""Classify tokens as separators and punctuation."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.atlas.head_statistics import Kinds


class Vocabulary:
    """Kinds of tokens by id, cached.

    Args:
        tokenizer: a tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        self._known: dict[int, tuple[bool, bool]] = {}

    def kinds(self, ids: Sequence[Sequence[int]]) -> Kinds:
        """Return the kinds of the tokens of some sequences of one length."""
        tokens = torch.tensor(ids)
        return Kinds(tokens, self._those(tokens, 0), self._those(tokens, 1))

    def _those(self, ids: Int[Tensor, "batch tokens"], which: int) -> Bool[Tensor, "batch tokens"]:
        each, places = ids.unique(return_inverse=True)
        return torch.tensor([self._of(token)[which] for token in each.tolist()])[places]

    def _of(self, token: int) -> tuple[bool, bool]:
        """Return whether a token is a separator (special, or the end of a line), and punctuation.

        Punctuation has signs, but no letter and no digit.
        """
        if token not in self._known:
            text = self._tokenizer.decode([token])
            if token in self._special or ("\n" in text and not text.strip()):
                self._known[token] = (True, False)
            else:
                signs = text.removeprefix("##").strip()
                self._known[token] = (False, bool(signs) and not any(map(str.isalnum, signs)))
        return self._known[token]
