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
from regard.hf.config import config_of


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


def pretrained(
    model: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    allow_remote_code: bool = False,
) -> Loader:
    """Return how to get a model of transformers, from safetensors.

    Args:
        model: a folder that every worker can read, or a name on the Hugging Face hub.
        dtype: the type of its numbers.
        device: where it runs.
        allow_remote_code: whether Python files that come with the model may be run; a model that
            needs them is refused otherwise.
    """
    name, model, stamp = located(model)
    return Loader(
        name,
        partial(_model, model, dtype, device, allow_remote_code),
        partial(_tokenizer, model, allow_remote_code),
        f"{dtype} {stamp}",
    )


def located(model: str) -> tuple[str, str, str]:
    """Return the name of a model, where workers find it, and what changes when its files do.

    Workers may run in other folders; so the place of a file or folder is absolute. All of it is
    read, as sizes and times don't tell whether weights have changed. Of a name on the hub nothing
    is known here.
    """
    path = Path(model).expanduser()
    if not path.exists():
        return model, model, ""
    path = path.resolve()
    return path.stem if path.is_file() else path.name, str(path), _stamp(path)


def _stamp(model: Path) -> str:
    """Return the digest of all that is in a file, or in the files of a folder."""
    files = [model] if model.is_file() else sorted(one for one in model.iterdir() if one.is_file())
    content = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "blake2b").hexdigest()
        content.update(f"{path.name}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return content.hexdigest()[:12]


def _model(model: str, dtype: torch.dtype, device: str, allow_remote_code: bool) -> nn.Module:
    transformers = needed("transformers")
    transformers.utils.logging.disable_progress_bar()
    found = transformers.AutoModel.from_pretrained(
        model,
        config=config_of(model, allow_remote_code=allow_remote_code),
        trust_remote_code=allow_remote_code,
        dtype=dtype,
        use_safetensors=True,
    )
    return found.to(device).eval()


def _tokenizer(model: str, allow_remote_code: bool) -> Any:
    auto = needed("transformers").AutoTokenizer
    return auto.from_pretrained(model, trust_remote_code=allow_remote_code)
