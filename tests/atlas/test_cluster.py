"""A survey on a real Ray cluster: the same numbers, whoever is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from regard.atlas import Atlas, Loader, survey
from regard.atlas.cluster import _check_loopback, _on_loopback, counted_on_ray
from regard.atlas.shard_windows import Settings
from regard.atlas.tally import Tally
from tests.atlas.surveying import assert_alike, held, many_files, mixed_corpus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread", "quiet_transformers"),
    # Ray Data sets what it deprecates itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FILES = 24


@pytest.fixture(scope="module", autouse=True)
def not_standing_back() -> Iterator[None]:
    """Let Ray's workers have their share of a busy machine: by default they stand back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_files(tmp_path_factory.mktemp("files") / "corpus", FILES, size=2_000)


@pytest.fixture(scope="module")
def here(corpus: Path, loader: Loader, tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    """The survey, made in this process."""
    out = tmp_path_factory.mktemp("here") / "a.atlas"
    return survey(corpus, out, loader, length=64, shards=FILES)


DRIVER = """
import sys
from pathlib import Path

import torch

from regard.atlas import pretrained, survey
from tests.atlas.surveying import held

if __name__ == "__main__":
    source, out, model, shards, most, *address = sys.argv[1:]
    loader = pretrained(model, dtype=torch.float64)
    if int(most):
        loader = held(loader, Path(out), int(most))
    where = {"address": address[0]} if address else {"workers": 2}
    survey(source, out, loader, length=64, shards=int(shards), progress=False, **where)
    import ray
    assert not ray.is_initialized()
"""


@pytest.fixture
def drive(model: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a survey in a process of its own, in another folder than this one."""
    started: list[subprocess.Popen[str]] = []
    script = tmp_path / "driver.py"
    script.write_text(DRIVER, encoding="utf-8")

    def start(corpus: Path, out: Path, *address: str, shards: int = FILES, most: int = 0) -> Any:
        # With a relative path to the model, which means nothing to workers elsewhere.
        arguments = [script, corpus, out, model.name, shards, most, *address]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        if not address:
            environment["RAY_ADDRESS"] = ""
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=model.parent,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[str]:
    """A cluster that a user has started, with two processors; return its address."""
    import ray

    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield context.address_info["gcs_address"]
    ray.shutdown()


def parts_of(out: Path) -> list[Path]:
    return sorted((out / "shards").glob("*.npz"))


def wait_for(condition: Callable[[], Any], seconds: float = 300.0) -> Any:
    """Return what a condition says once it is true of it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)
    return found


def actors(below: int) -> list[psutil.Process]:
    """Return the processes of a cluster's actors that count, among those that a process started."""
    found: list[psutil.Process] = []
    for process in psutil.Process(below).children(recursive=True):
        try:
            if "_Count" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def of_ours(warned: str) -> list[str]:
    """Return what is told but for one thing that Ray's core says to everyone who uses Ray Data.

    It is of no matter: Ray Data keeps the arguments that it speaks of until all is done.
    """
    known = "has constructor arguments in the object store and max_restarts > 0"
    return [line for line in warned.splitlines() if known not in line]


def test_a_cluster_of_this_machine_alone_is_started_and_ended_in_silence(
    drive: Callable[..., Any], loader: Loader, tmp_path: Path
) -> None:
    corpus, out = mixed_corpus(tmp_path / "corpus"), tmp_path / "ray.atlas"
    process = drive(corpus, out, shards=5, most=1)
    wait_for(lambda: parts_of(out) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    below = psutil.Process(process.pid)
    listening = [
        connection.laddr.ip
        for one in (below, *below.children(recursive=True))
        for connection in one.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    (out / "go").touch()
    printed, warned = process.communicate(timeout=600)
    assert process.returncode == 0, warned
    assert (printed, of_ours(warned)) == ("", [])
    # The server of the cluster, that of this machine, the driver and each worker.
    assert len(listening) >= 5
    assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    (out / "go").unlink()
    alone = survey(corpus, tmp_path / "here.atlas", loader, length=64, shards=1)
    assert_alike(Atlas(out), alone)


def test_what_ray_is_told_is_taken_back() -> None:
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    with _on_loopback():
        assert not ray_constants.ENABLE_RAY_CLUSTER
    after = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    assert after == before
    with pytest.raises(RuntimeError, match=r"must listen on loopback, got 192\.0\.2\.1"):
        _check_loopback("192.0.2.1")


def test_a_killed_driver_is_started_again_and_goes_on(
    own_cluster: str, drive: Callable[..., Any], corpus: Path, here: Atlas, tmp_path: Path
) -> None:
    import ray

    out = tmp_path / "a.atlas"
    process = drive(corpus, out, own_cluster, most=4)
    wait_for(lambda: len(parts_of(out)) >= 4 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Those that work follow the driver.
    wait_for(lambda: not actors(os.getpid()))
    parts = parts_of(out)
    assert 4 <= len(parts) < FILES
    # What is taken as it is shows what is not counted again.
    for part in parts:
        tally = Tally.load(part)
        tally.add("documents", 1_000)
        part.write_bytes(tally.to_bytes())
    process = drive(corpus, out, own_cluster)
    printed, warned = process.communicate(timeout=600)
    assert process.returncode == 0, warned
    assert (printed, of_ours(warned)) == ("", [])
    found = Atlas(out)
    assert found.about.documents == here.about.documents + 1_000 * len(parts)
    about = found.path / "atlas.json"
    said = about.read_text("utf-8").replace(
        f'"documents": {found.about.documents}', f'"documents": {here.about.documents}'
    )
    about.write_text(said, encoding="utf-8")
    assert_alike(Atlas(out), here)
    # The cluster that was found by its address is left alone.
    assert ray.is_initialized()
    assert ray.cluster_resources()["CPU"] == 2


def test_a_users_cluster_is_used_and_left_alone(
    own_cluster: str, corpus: Path, loader: Loader, here: Atlas, tmp_path: Path
) -> None:
    import ray
    import ray.data

    before = ray.data.DataContext.get_current().enable_progress_bars
    # More workers than there are processors.
    found = survey(corpus, tmp_path / "a.atlas", loader, length=64, shards=5, workers=3)
    assert_alike(found, here)
    assert ray.is_initialized()
    assert ray.data.DataContext.get_current().enable_progress_bars == before


def test_a_killed_worker_loses_nothing(
    own_cluster: str, corpus: Path, loader: Loader, here: Atlas, tmp_path: Path
) -> None:
    out = tmp_path / "a.atlas"
    killed: set[int] = set()

    def living() -> list[psutil.Process]:
        # One that was killed may be seen for a while.
        return [actor for actor in actors(os.getpid()) if actor.pid not in killed]

    def kill() -> None:
        for enough in (2, 6):
            wait_for(lambda: len(parts_of(out)) >= enough)  # noqa: B023
            for process in wait_for(living):
                killed.add(process.pid)
                process.send_signal(signal.SIGKILL)
        (out / "go").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    found = survey(corpus, out, held(loader, out, 6), length=64, shards=FILES, workers=1)
    killer.join()
    assert len(killed) >= 2
    (out / "go").unlink()
    assert_alike(found, here)


def test_nothing_to_count_needs_no_cluster(loader: Loader) -> None:
    found = counted_on_ray([], loader, Settings(64), 8, workers=1, address="192.0.2.1:1", gpus=0.0)
    assert list(found) == []


def test_what_a_worker_raises_is_told(
    own_cluster: str, corpus: Path, loader: Loader, tmp_path: Path
) -> None:
    import ray

    class NoAttention(torch.nn.Linear):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return super().forward(input_ids.to(self.weight.dtype)[..., None])

    broken = Loader("broken", lambda: NoAttention(1, 1), loader.tokenizer)
    with pytest.raises(ray.exceptions.RayTaskError, match="no attention was seen"):
        survey(corpus, tmp_path / "a.atlas", broken, length=64, shards=2, workers=1)
    assert ray.is_initialized()
