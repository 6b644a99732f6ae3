"""Count shards on a Ray cluster, with Ray Data."""

import logging
import os
import pickle
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from ipaddress import ip_address
from typing import Any

from regard.atlas.extra import needed
from regard.atlas.loader import Loader
from regard.atlas.shard_windows import Settings, prepare
from regard.atlas.surveyor import Surveyor
from regard.atlas.tally import Tally
from regard.atlas.units import Shard

Row = dict[str, Any]

LOCAL = "local"
"""The address for starting a local cluster."""

_COUNTERS_FOR_EACH_READER = 8
_DEATHS = 3
"""Maximum consecutive workers that die while loading the model."""


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
    """Yield the name of each shard and the bytes of its tally, in order of completion.

    A row of the pipeline is a shard: some actors read and tokenize it, others run the model and
    count. Ray Data applies back-pressure, and retries the shards of dead actors.

    Args:
        shards: the shards to count.
        loader: loads the model in workers.
        settings: the settings of the windows.
        batch_size: maximum windows per batch.
        workers: number of actors that count.
        address: a cluster, as for `ray.init`; by default RAY_ADDRESS, or "local", a new one on
            this machine. An existing connection of this process is used.
        gpus: GPUs per counting actor.
        surveyor: the class that counts.
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
        # The context of this pipeline only.
        rows.context.enable_progress_bars = False
        rows.context.max_consecutive_actor_init_deaths = _DEATHS
        prepared = rows.map(
            _Prepare,
            fn_constructor_args=(loader, settings),
            compute=pool(size=-(-workers // _COUNTERS_FOR_EACH_READER)),
            # No CPU reserved, so that readers are always scheduled.
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
    """Counts the windows of shards with its own model."""

    def __init__(
        self, surveyor: type[Surveyor], loader: Loader, settings: Settings, batch_size: int
    ) -> None:
        self._surveyor = surveyor(loader.model(), loader.tokenizer(), settings, batch_size)

    def __call__(self, row: Row) -> Row:
        tally = self._surveyor.count(pickle.loads(row["windows"]))
        tally.merge(Tally.from_bytes(row["tally"]))
        return {"name": row["name"], "tally": tally.to_bytes()}


@contextmanager
def _connected(address: str | None) -> Generator[None, None, None]:
    """Connect to Ray, or start it, unless connected; disconnect at the end.

    A started cluster listens on loopback only, and requires Ray's token, which is in the home
    folder of the user.
    """
    ray = needed("ray")
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _on_loopback() if address == LOCAL else nullcontext():
        ray.init(address=address, include_dashboard=False, **options)
        try:
            if address == LOCAL:
                _check_loopback(ray.util.get_node_ip_address())
            yield
        finally:
            ray.shutdown()


@contextmanager
def _on_loopback() -> Generator[None, None, None]:
    """Make Ray listen on 127.0.0.1 only, as on macOS and Windows.

    Elsewhere it replaces 127.0.0.1 with an external address of the machine.
    """
    constants: Any = needed("ray._private.ray_constants")
    name = constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    before, said = constants.ENABLE_RAY_CLUSTER, os.environ.get(name)
    # Ray's processes read the variable; this process has read it into the constant.
    constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        if said is None:
            del os.environ[name]
        else:
            os.environ[name] = said


def _check_loopback(address: str) -> None:
    if not ip_address(address).is_loopback:
        raise RuntimeError(
            f"Ray must listen on loopback, got {address}: upgrade Ray, or start a cluster and pass "
            "its address"
        )


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Silence the info messages of Ray Data; its log files keep them."""
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
    """Return whether to print a record: warnings, except those about progress bars."""
    return record.levelno >= logging.WARNING and "rogress bars" not in record.getMessage()
