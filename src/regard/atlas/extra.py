"""Import optional dependencies of the atlas."""

from importlib import import_module
from typing import Any


def needed(module: str) -> Any:
    """Import a module.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'the atlas needs {package}: pip install "regard[atlas]"') from error
