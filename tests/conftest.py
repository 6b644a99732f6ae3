"""Settings of the whole test run.

``HYPOTHESIS_PROFILE`` chooses how hard the laws are tried: ``default``, ``ci`` (the same examples
in every run; chosen by itself where ``CI`` is set) or ``thorough``.
"""

import gc
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import config

from tests.elsewhere import Elsewhere, other_process
from tests.pairwise import leave_to_the_night

pytest_plugins = ["pytester"]

# Until all tests are collected, after which what is there then is left alone.
gc.disable()

settings.register_profile(
    "default",
    deadline=None,
    max_examples=20,
    # A busy machine is no fault of a law.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
NIGHT = PROFILE == "thorough"
settings.load_profile(PROFILE)


def _shapes_checked(found: Any = None, /, **options: Any) -> Any:
    """Check the shapes of a function that says some: most say none, and every check takes time."""
    if found is None:
        return lambda later: _shapes_checked(later, **options)
    function = found.__init__ if inspect.isclass(found) else inspect.unwrap(_function(found))
    said = getattr(function, "__annotations__", {}).values()
    return _jaxtyped(found, **options) if any(map(_is_shape, said)) else found


def _function(found: Any) -> Any:
    """Return what a property, a method of a class or a function runs."""
    return getattr(found, "fget", None) or getattr(found, "__func__", found)


def _is_shape(annotation: Any) -> bool:
    """Say whether a shape is in an annotation, or may be in one that is a string."""
    if isinstance(annotation, str):
        return "[" in annotation
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_is_shape, get_args(annotation)))


# What the option --jaxtyping-packages puts before every function.
_jaxtyped, jaxtyping.jaxtyped = jaxtyping.jaxtyped, _shapes_checked


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most combinations to the night; put what takes long first, so that no worker idles."""
    leave_to_the_night(items)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check shapes in the fast tests only: the slow ones call what those call, and often.

    By night in all.
    """
    config.update("jaxtyping_disable", item.get_closest_marker("slow") is not None and not NIGHT)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all modules and tests again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Compute in one thread: on tensors as small as ours, several take three times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switch shape checks off.

    To see the errors that users see, who run without them, and where torch traces our code.
    """
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """Run Python with arguments in a fresh process, and return what it prints."""

    def run(*arguments: str) -> str:
        finished = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    """Call functions in a process of their own, where torch.compile sees what users have."""
    with other_process() as call:
        yield call


@pytest.fixture(scope="module")
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from printing what it loads."""
    from transformers import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    yield
    logging.set_verbosity(before)
    logging.enable_progress_bar()
