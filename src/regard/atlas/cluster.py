"""Shards counted by the workers of a Ray cluster, as a pipeline of Ray Data."""

import logging
import pickle
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from regard.atlas.extra import needed
from regard.atlas.loader import Loader
from regard.atlas.shard_windows import Settings, prepare
from regard.atlas.surveyor import Surveyor
from regard.atlas.tally import Tally
from regard.atlas.units import Shard

Row = dict[str, Any]

_COUNTERS_FOR_EACH_READER = 8
_DEATHS = 3
"""How many workers in a row may die while they load the model before a survey gives up."""


def counted_on_ray(
    shards: Sequence[Shard],
    loader: Loader,
    settings: Settings,
    batch_size: int,
    *,
    workers: int,
    address: str | None,
    gpus: float,
    surveyor: type[Surveyor] = Surveyor,
) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each shard and the bytes of its tally, in the order they are done in.

    A row of the pipeline is a shard: some actors read and tokenize it, others have the model and
    count. Ray Data passes on no more than they can take, and does again what a dead one had begun.

    Args:
        shards: what to count.
        loader: where workers get the model from.
        settings: what decides which windows there are.
        batch_size: how many windows a worker runs at once, at most.
        workers: how many actors count.
        address: a cluster, as for `ray.init`. A process that is connected to one stays with it.
        gpus: how much of a GPU each of these actors takes.
        surveyor: what counts.
    """
    if not shards:
        return
    ray_data = needed("ray.data")
    pool = ray_data.ActorPoolStrategy
    with _connected(address), _quiet():
        rows = ray_data.from_items(
            [{"shard": pickle.dumps(shard)} for shard in shards],
            override_num_blocks=len(shards),
        )
        # What follows has the same context, nobody else does.
        rows.context.enable_progress_bars = False
        rows.context.max_consecutive_actor_init_deaths = _DEATHS
        prepared = rows.map(
            _Prepare,
            fn_constructor_args=(loader, settings),
            compute=pool(size=-(-workers // _COUNTERS_FOR_EACH_READER)),
            # They always find room, so that those that count never wait for them in vain.
            num_cpus=0,
        )
        counted = prepared.map(
            _Count,
            fn_constructor_args=(surveyor, loader, settings, batch_size),
            compute=pool(size=workers),
            **({"num_gpus": gpus} if gpus else {"num_cpus": 1}),
        )
        for row in counted.iter_rows():
            yield row["name"], row["tally"]


class _Prepare:
    """Reads and tokenizes shards."""

    def __init__(self, loader: Loader, settings: Settings) -> None:
        self._tokenizer, self._settings = loader.tokenizer(), settings

    def __call__(self, row: Row) -> Row:
        shard = pickle.loads(row["shard"])
        windows, tally = prepare(shard, self._tokenizer, self._settings)
        return {"name": shard.id, "windows": pickle.dumps(windows), "tally": tally.to_bytes()}


class _Count:
    """Counts the windows of shards with a model of its own."""

    def __init__(
        self, surveyor: type[Surveyor], loader: Loader, settings: Settings, batch_size: int
    ) -> None:
        self._surveyor = surveyor(
            loader.model(), loader.tokenizer(), batch_size=batch_size, seed=settings.seed
        )

    def __call__(self, row: Row) -> Row:
        tally = self._surveyor.count(pickle.loads(row["windows"]))
        tally.merge(Tally.from_bytes(row["tally"]))
        return {"name": row["name"], "tally": tally.to_bytes()}


@contextmanager
def _connected(address: str | None) -> Generator[None, None, None]:
    """Connect to Ray, or start it, unless that is done; leave it as it was found."""
    ray = needed("ray")
    if ray.is_initialized():
        yield
        return
    ray.init(
        address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keep Ray Data from telling what goes well; its files have it all the same."""
    streams = [
        handler
        for handler in logging.getLogger("ray.data").handlers
        if isinstance(handler, logging.StreamHandler)
    ]
    for stream in streams:
        stream.addFilter(_matters)
    try:
        yield
    finally:
        for stream in streams:
            stream.removeFilter(_matters)


def _matters(record: logging.LogRecord) -> bool:
    """Say whether to tell; that Ray's own progress bars are off is no news."""
    return record.levelno >= logging.WARNING and "rogress bars" not in record.getMessage()
