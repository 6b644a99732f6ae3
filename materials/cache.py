"""Folders that are made once, and are whole whenever they are there."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, and make it first if it is not there.

    Args:
        name: of the folder.
        make: makes the folder at the path it is given; what else it leaves beside is removed.
    """
    final = Path(os.environ.get("REGARD_MATERIALS") or _DEFAULT).expanduser().absolute() / name
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    # Next to the final folder, so that it moves there in one step: whoever is interrupted, or looks
    # while another is at work, never meets a folder that is half done.
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".{name}-") as work:
        made = Path(work) / name
        make(made)
        try:
            made.rename(final)
        except OSError:
            # Another process was quicker, and its folder is as good as ours.
            if not final.is_dir():
                raise
    return final


_DEFAULT = "~/.cache/regard/materials"
