"""The maximum spanning tree of a sentence."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_SPECIAL = re.compile(
    r"\[(?:CLS|SEP|PAD|BOS|EOS)\]|</?s>|<(?:pad|bos|eos|cls|sep)>|<[|｜][^|｜]+[|｜]>"
)


class Link(NamedTuple):
    """An edge of a tree: the indices of two words, in order, and its weight."""

    first: int
    second: int
    weight: float


def spanning_tree(weights: Float[Tensor, "words words"]) -> list[Link]:
    """Return the maximum spanning tree of the undirected weights max(A, Aᵀ).

    Pairs of weight 0 are no edges, so the tree may be a forest.

    Raises:
        ImportError: networkx is missing.

    >>> import torch
    >>> spanning_tree(torch.tensor([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5], [0.4, 0.0, 0.6]]))
    [Link(first=0, second=1, weight=0.9), Link(first=1, second=2, weight=0.5)]
    """
    try:
        import networkx
    except ImportError as error:
        raise ImportError('trees need networkx: pip install "regard[plot]"') from error
    both = torch.maximum(weights, weights.T).double().cpu().tolist()
    graph = networkx.Graph()
    for second, row in enumerate(both):
        for first in range(second):
            if row[first] > 0.0:
                graph.add_edge(first, second, weight=round(row[first], 7))
    found = networkx.maximum_spanning_edges(graph, data=True)
    return sorted(Link(min(a, b), max(a, b), data["weight"]) for a, b, data in found)


def is_special(token: str) -> bool:
    """Return whether a token is special: "[CLS]", "</s>", "<|endoftext|>".

    >>> [is_special(token) for token in ("[SEP]", "<s>", "<|im_start|>", "[MASK]", "<script>")]
    [True, True, True, False, False]
    """
    return _SPECIAL.fullmatch(token) is not None


def between_words(
    weights: Float[Tensor, "tokens tokens"], words: Sequence[int | None]
) -> Float[Tensor, "words words"]:
    """Return the weights between words: summed over the tokens of a key, averaged over a query.

    Args:
        weights: [tokens, tokens].
        words: the word of each token, such as `encoding.word_ids()`; tokens with None are left out.
    """
    numbers = list(dict.fromkeys(word for word in words if word is not None))
    member = torch.tensor([[word == number for word in words] for number in numbers])
    member = member.to(weights).reshape(len(numbers), len(words))
    return (member / member.sum(dim=1, keepdim=True)) @ weights @ member.T
