"""Load the model and its tokenizer in workers."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.atlas.extra import needed
from regard.hf.untrusted import check_safetensors, config_of


@dataclass(frozen=True)
class Loader:
    """Functions that load a model in any process.

    Args:
        name: the name of the model.
        model: returns the model, which is put in evaluation mode. Each worker calls it once; both
            functions must be picklable.
        tokenizer: returns its tokenizer.
        stamp: a digest of the model; a survey is resumed only with the same.
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
    generates: bool = False,
) -> Loader:
    """Return a loader of a transformers model, from safetensors.

    Args:
        model: a folder that every worker can read, or a name on the Hugging Face hub.
        dtype: its dtype.
        device: its device.
        allow_remote_code: whether to run Python files that come with the model; without it, a model
            that needs them is an error.
        generates: whether to load a decoder with its language-model head.
    """
    name, model, stamp = located(model)
    return Loader(
        name,
        partial(_model, model, dtype, device, allow_remote_code, generates),
        partial(_tokenizer, model, allow_remote_code),
        f"{dtype} {stamp}",
    )


def located(model: str) -> tuple[str, str, str]:
    """Return the name of a model, its path for workers, and a digest of its files.

    The path is absolute, as workers may run in other folders. The digest covers all bytes, as sizes
    and times don't show changed weights; for a name on the hub it is the commit, empty if that is
    neither cached nor reached.
    """
    path = Path(model).expanduser()
    if not path.exists():
        return model, model, _commit(model)
    path = path.resolve()
    return path.stem if path.is_file() else path.name, str(path), _stamp(path)


def _commit(model: str) -> str:
    """Return the commit of a model on the hub; "" if it isn't found, which loading it explains."""
    try:
        config = needed("huggingface_hub").hf_hub_download(model, "config.json")
    except (OSError, ValueError):
        return ""
    return Path(config).parent.name


def _stamp(model: Path) -> str:
    """Return the digest of a file, or of all files of a folder."""
    files = [model] if model.is_file() else sorted(one for one in model.iterdir() if one.is_file())
    content = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "blake2b").hexdigest()
        content.update(f"{path.name}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return content.hexdigest()[:12]


def _model(
    model: str, dtype: torch.dtype, device: str, allow_remote_code: bool, generates: bool
) -> nn.Module:
    transformers = needed("transformers")
    transformers.utils.logging.disable_progress_bar()
    auto = transformers.AutoModelForCausalLM if generates else transformers.AutoModel
    config = config_of(model, allow_remote_code=allow_remote_code)
    found = auto.from_pretrained(
        model,
        config=config,
        **check_safetensors(model, config),
        trust_remote_code=allow_remote_code,
        dtype=dtype,
        use_safetensors=True,
    )
    return found.to(device).eval()


def _tokenizer(model: str, allow_remote_code: bool) -> Any:
    auto = needed("transformers").AutoTokenizer
    return auto.from_pretrained(model, trust_remote_code=allow_remote_code)
