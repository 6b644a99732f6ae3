"""`regard doctor`: versions, devices and working backends."""

import platform
import re
import sys
from importlib import metadata
from typing import Any

import torch
from rich.table import Table

from regard import __version__, attend, causal
from regard.attention.choose import BACKENDS
from regard.cli.console import one_line_errors, out, print_json
from regard.cli.options import JsonOption

_FOR_GGUF = ("accelerate", "gguf")
"""Packages that transformers needs for GGUF files; not in an extra."""

_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*(?:;.*\bextra\s*==\s*["']([\w.-]+)["'])?""")
"""The name of a package, and its extra, if any."""


@one_line_errors
def doctor(as_json: JsonOption = False) -> None:
    """List versions, devices and kernels, and why one does not work.

    **Example**

        regard doctor
    """
    found = {"versions": _versions(), "devices": _devices(), "backends": _backends()}
    if as_json:
        print_json(found)
        return
    console = out()
    for title, rows in found.items():
        table = Table(
            title=title, title_justify="left", box=None, pad_edge=False, show_header=False
        )
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, says in rows.items():
            table.add_row(name, says)
        console.print(table)
        console.print()


def _versions() -> dict[str, str]:
    versions = {
        "regard": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    for package, install in _packages().items():
        if package in versions:
            continue
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = f"not installed: pip install {install}"
    return versions


def _packages() -> dict[str, str]:
    """Return the argument of `pip install` for each package of Regard and its extras."""
    always: list[str] = []
    extras: dict[str, list[str]] = {}
    for requirement in metadata.requires("regard") or []:
        found = _REQUIREMENT.match(requirement)
        assert found is not None, requirement
        package, extra = found.groups()
        (always if extra is None else extras.setdefault(extra, [])).append(package)
    # Extras for users, without those for development; the smallest extra with a package.
    for_users = extras.pop("all", [])
    smallest = sorted(extras, key=lambda extra: len(extras[extra]))
    return {
        **dict.fromkeys(always, "regard"),
        **{
            package: f'"regard[{next(extra for extra in smallest if package in extras[extra])}]"'
            for package in for_users
        },
        **{package: package for package in _FOR_GGUF},
    }


def _devices() -> dict[str, str]:
    devices = {"cpu": f"{platform.machine()}, {torch.get_num_threads()} threads"}
    capability = torch.backends.cpu.get_cpu_capability()
    devices["cpu"] += f", {capability}"
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            devices[f"cuda:{number}"] = torch.cuda.get_device_name(number)
    else:
        devices["cuda"] = "none: torch sees no GPU" if torch.version.cuda else "none: a CPU build"
    if sys.platform == "darwin":
        devices["mps"] = "yes" if torch.backends.mps.is_available() else "none"
    return devices


def _backends() -> dict[str, str]:
    """Run each backend on a small input, on a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = [torch.randn(1, 2, 256, 64, device=device) for _ in range(3)]
    expected = attend(*tensors, pattern=causal(), backend="reference")
    found: dict[str, str] = {}
    for backend in BACKENDS:
        if backend == "flex" and device == "cpu":
            found[backend] = "not tried: on the CPU it takes half a minute to compile"
            continue
        found[backend] = _tried(backend, tensors, expected, device)
    return found


def _tried(backend: str, tensors: list[torch.Tensor], expected: torch.Tensor, device: str) -> str:
    options: Any = {"pattern": causal(), "backend": backend}
    try:
        output = attend(*tensors, **options)
    except (ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        return f"does not work on {device}: {' '.join(str(error).split())[:200]}"
    gap = (output - expected).abs().max().item()
    return f"works on {device}, within {gap:.0e} of the reference"
