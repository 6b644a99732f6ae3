"""Where workers get the model and its tokenizer from."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.atlas.extra import needed


@dataclass(frozen=True)
class Loader:
    """How to get a model, wherever the work is done.

    Args:
        name: what to call it.
        model: returns the model, in evaluation mode. Each worker calls it once; so both must be
            functions that can be sent to another process.
        tokenizer: returns its tokenizer.
        stamp: what changes when the model does: a survey is continued only with the same.
    """

    name: str
    model: Callable[[], nn.Module]
    tokenizer: Callable[[], Any]
    stamp: str = ""


def pretrained(model: str, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Loader:
    """Return how to get a model of transformers, from safetensors.

    Args:
        model: a folder that every worker can read, or a name on the Hugging Face hub.
        dtype: the type of its numbers.
        device: where it runs.
    """
    name, model, stamp = located(model)
    return Loader(
        name,
        partial(_model, model, dtype, device),
        partial(_tokenizer, model),
        f"{dtype} {stamp}",
    )


def located(model: str) -> tuple[str, str, str]:
    """Return the name of a model, where workers find it, and what changes when its files do.

    Workers may run in other folders; so the place of a folder is absolute.
    """
    if not Path(model).is_dir():
        return model, model, ""
    folder = Path(model).resolve()
    return folder.name, str(folder), _stamp(folder)


def _stamp(folder: Path) -> str:
    """Return what changes when a file of a folder does, as far as names, sizes and times tell."""
    content = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        known = path.stat()
        content.update(f"{path.name}\0{known.st_size}\0{known.st_mtime_ns}\n".encode())
    return content.hexdigest()[:12]


def _model(model: str, dtype: torch.dtype, device: str) -> nn.Module:
    transformers = needed("transformers")
    transformers.utils.logging.disable_progress_bar()
    found = transformers.AutoModel.from_pretrained(model, dtype=dtype, use_safetensors=True)
    return found.to(device).eval()


def _tokenizer(model: str) -> Any:
    return needed("transformers").AutoTokenizer.from_pretrained(model)
