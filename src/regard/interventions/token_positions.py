"""Find the positions of the queries and keys of a call in their texts.

A pattern counts tokens from 0. A call has its keys from 0 and its queries anywhere among them:

    call           keys                  queries at    evidence
    a whole text   0 1 2 3 4             0 1 2 3 4     as many queries as keys
    a step         0 1 2 3 4             4             a cache of transformers, which counts tokens
    a step         0 1 2 3 4             4             keys 0–3 are those of the call before
    a rolling one  3 4 5 6, as 0 1 2 3   6             a cache of transformers only

A hand-written cache does not count its tokens. So the last key of each call is kept, and
compared with the key at its place in the next one (`GrowingKeys`). Keys that are no tokens, such as
learned prefixes, would shift all positions: they are parameters of the module (`is_memory`), or
more keys than tokens (`has_tokens`). Unknown positions are refused by the callers.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.capture.call import UnreadableError
from regard.capture.listener import CallSite
from regard.capture.module_stack import Frame
from regard.capture.parse import ParsedCall, is_causal
from regard.capture.projections import tensors_in


class Positions(NamedTuple):
    """The positions of the first query and the first key; None for a query if unknown."""

    first_query: int | None
    first_key: int


@runtime_checkable
class _Cache(Protocol):
    """A cache of transformers."""

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        """Return the number of tokens of a layer so far, dropped ones included."""
        ...


def positions_of(
    frame: Frame, cross: bool, num_queries: int, num_keys: int, first_query: int | None
) -> Positions:
    """Return the positions of a call's queries and keys.

    Args:
        frame: the calling module; a cache of transformers among its arguments knows them.
        cross: whether the keys are those of another sequence; then queries are counted from the
            first of the call, unless there is a cache.
        num_queries: the number of queries.
        num_keys: the number of keys.
        first_query: the position of the first query by the call itself; None if unknown.
    """
    arguments = (*frame.arguments, *frame.options.values())
    cache = next((argument for argument in arguments if isinstance(argument, _Cache)), None)
    layer = getattr(frame.module, "layer_idx", None)
    num_cached = 0
    if cache is not None:
        # Of cross-attention, that of the decoder, whose layers all have the same tokens.
        num_cached = int(cache.get_seq_length(0 if cross or not isinstance(layer, int) else layer))
    if cross:
        return Positions(max(0, num_cached - num_queries), 0)
    if num_cached < num_queries:
        return Positions(first_query, 0)
    return Positions(num_cached - num_queries, max(0, num_cached - num_keys))


class GrowingKeys:
    """Finds the positions of queries whose keys continue those of an earlier call.

    The keys of the call before come first, and are the same numbers. The last of them is compared.
    """

    def __init__(self) -> None:
        self._latest: WeakKeyDictionary[nn.Module, tuple[int, Tensor]] = WeakKeyDictionary()

    def first_query(self, frame: Frame, key: Tensor, num_queries: int) -> int | None:
        """Return the position of the first query; None if the keys continue none that are known.

        Args:
            frame: the calling module. The keys that come first may also be among its arguments.
            key: the keys, [..., keys, key_dim], all of them used.
            num_queries: the number of queries, the last of the keys.
        """
        count = key.shape[-2] - num_queries
        if count <= 0:
            return None
        before, last = self._latest.get(frame.module, (0, key))
        if before == count and _same(key.select(-2, count - 1), last):
            return count
        # Keys of a cache, in any order of sequences and heads.
        arguments = tensors_in([*frame.arguments, *frame.options.values()])
        caches = [x for x in arguments if x.dim() > 2 and x.shape[-2:] == (count, key.shape[-1])]
        latest = key.select(-2, count - 1).flatten(0, -2)
        return count if any(_has_rows(cache.select(-2, -1), latest) for cache in caches) else None

    def has_dropped(self, frame: Frame, key: Tensor) -> bool:
        """Return whether the latest key of the call before has moved, as in a rolling cache."""
        before, last = self._latest.get(frame.module, (0, key))
        if not before or last.shape != key.shape[:-2] + key.shape[-1:] or last.dtype != key.dtype:
            return False
        is_last = (key.detach() == last.unsqueeze(-2)).flatten(0, -3).all(dim=-1).all(dim=0)
        return bool(is_last.any()) and not (len(is_last) >= before and bool(is_last[before - 1]))

    def note(self, module: nn.Module, key: Tensor) -> None:
        """Remember the keys of a call, [..., keys, key_dim], all of them used."""
        if key.shape[-2]:
            with torch.inference_mode(False):
                self._latest[module] = (key.shape[-2], key.detach().select(-2, -1).clone())


class QueryPositions:
    """The positions of the queries of calls: stated, known by a cache, or read from their keys.

    Args:
        stated: the position of the first query of each call, if stated.
        cross: whether queries and keys are two sequences, if stated.
    """

    def __init__(self, stated: int | None = None, cross: bool | None = None) -> None:
        self.cross = cross
        self._stated = stated
        self._growing = GrowingKeys()

    def of(
        self, site: CallSite, queries: int, keys: int, said: int | None, key: Tensor | None
    ) -> Positions:
        """Return the positions of a call; that of the first query is None if unknown.

        Args:
            site: the module that calls.
            queries: the number of queries.
            keys: the number of keys.
            said: the position of the first query by what the call itself says; None if unknown.
            key: the used keys, [..., keys, key_dim], if known.

        Raises:
            UnreadableError: the positions of keys are not those of tokens.
        """
        stand = positions_of(site.frame, site.cross is True, queries, keys, None)
        first_query = stand.first_query
        if self._stated is not None:
            first_query = self._stated
        else:
            if self.cross is None and key is not None:
                _check_first_key(site, queries, key)
            if first_query is None:
                first_query = self._first_query(site, queries, said, key)

        # The keys of this call come first in the next one of a cache.
        if not site.cross and key is not None:
            self._growing.note(site.module, key)
        return stand._replace(first_query=first_query)

    def of_call(self, site: CallSite, parsed: ParsedCall, key: Tensor) -> Positions:
        """Return the positions of an interpreted call, of which the keys are given."""
        inputs = parsed.call
        queries, used = inputs.num_queries, inputs.num_keys
        # A cache may have room behind the keys.
        if inputs.first_position is not None and is_causal(inputs.pattern):
            used = max(0, min(used, inputs.first_position + queries))
        return self.of(site, queries, inputs.num_keys, parsed.first_query, key[..., :used, :])

    def _first_query(
        self, site: CallSite, queries: int, said: int | None, key: Tensor | None
    ) -> int | None:
        """Return the position of the first query; None if the keys don't show it."""
        if key is None:
            # The mask tells the position among the keys, but not whether the first is a token.
            return 0 if said == 0 else None
        if self._growing.has_dropped(site.frame, key):
            raise UnreadableError(
                "its cache has dropped or moved keys, so positions of tokens are not those of keys"
            )
        grown = self._growing.first_query(site.frame, key, queries)
        if grown is None and said and not has_tokens(site.frame, key.shape[-2], key):
            return None
        return said if grown is None else grown


def _check_first_key(site: CallSite, queries: int, key: Tensor) -> None:
    """Refuse keys of which the first is no token."""
    is_zero = key.shape[-2] != queries and not bool(key.detach().select(-2, 0).any())
    if is_zero or is_memory(site.module, key):
        raise UnreadableError(
            "its first keys are parameters or zeros, so positions of tokens are not those of "
            "keys: pass positions=, that of the first query among the keys"
        )


def is_memory(
    module: nn.Module, key: Float[Tensor, "*leading keys key_dim"], index: int = 0
) -> bool:
    """Return whether a key is a parameter of a module, and no token.

    Args:
        module: the module.
        key: the keys.
        index: the number of the key, the first by default.
    """
    if not key.numel():
        return False
    vector = key.detach().reshape(-1, *key.shape[-2:])[0, index]
    size = len(vector)
    return any(
        bool((parameter.detach().reshape(-1, size) == vector).all(dim=1).any())
        for parameter in module.parameters()
        if parameter.dim() > 1 and parameter.numel() % size == 0 and parameter.dtype == vector.dtype
    )


def has_tokens(
    frame: Frame, num_keys: int, key: Float[Tensor, "*leading keys key_dim"] | None
) -> bool:
    """Return whether keys may be tokens from the first on: as many as those of an input, or cached.

    A learned prefix or a sink makes more keys than tokens, in the call itself.
    """
    if any(num_keys in x.shape[:-1] for x in frame.given):
        return True
    return key is not None and frame.sequences(key.flatten(0, -3), (0,), given=False) is None


def _has_rows(vectors: Float[Tensor, "*leading dim"], wanted: Float[Tensor, "rows dim"]) -> bool:
    """Return whether each wanted vector is among others."""
    rows = vectors.detach().reshape(-1, vectors.shape[-1])
    if (rows.dtype, rows.device) != (wanted.dtype, wanted.device):
        return False
    return bool((rows[:, None] == wanted).all(dim=2).any(dim=0).all())


def _same(first: Tensor, second: Tensor) -> bool:
    kinds = [(x.shape, x.dtype, x.device) for x in (first, second)]
    return kinds[0] == kinds[1] and torch.equal(first, second)
