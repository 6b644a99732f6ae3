"""Where the queries and keys of a call stand in their texts."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from regard.watch.module_stack import Frame


class Places(NamedTuple):
    """Where the first query and the first key stand; None for a query if that isn't known."""

    first_query: int | None
    first_key: int


@runtime_checkable
class _Cache(Protocol):
    """A cache of transformers."""

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        """Return how many tokens a layer has been given, dropped ones included."""
        ...


def places(
    frame: Frame, cross: bool, num_queries: int, num_keys: int, assumed: int | None
) -> Places:
    """Return where queries and keys stand.

    Args:
        frame: the module that calls, and what it was given: if a cache of transformers is among it,
            that knows.
        cross: whether the keys are those of another sequence.
        num_queries: the number of queries.
        num_keys: the number of keys.
        assumed: where the first query stands among the keys, by what the call itself says.
    """
    given = (*frame.arguments, *frame.options.values())
    cache = next((one for one in given if isinstance(one, _Cache)), None)
    layer = getattr(frame.module, "layer_idx", None)
    fed = 0
    if cache is not None:
        # Of the decoder, whose layers have all been fed alike.
        fed = int(cache.get_seq_length(0 if cross or not isinstance(layer, int) else layer))
    if cross:
        return Places(max(0, fed - num_queries), 0)
    if fed < num_queries:
        return Places(assumed, 0)
    return Places(fed - num_queries, max(0, fed - num_keys))
