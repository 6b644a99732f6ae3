"""Which files transformers reads the weights of a model from."""

import json
import re
from pathlib import Path
from typing import Any

_INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"

_PLAIN = re.compile(r"[^/\\:]+\.safetensors")
"""A name in the folder of the model."""


def check_safetensors(model: str, config: Any) -> dict[str, str]:
    """Check that the weights of a model are read from safetensors in its folder alone.

    Even with `use_safetensors=True` transformers reads whatever an index or a config names, and
    unpickles what has another ending; and adapters, which may be pickled.

    Args:
        model: a folder, or a name on the hub.
        config: its config.

    Returns:
        Options for `from_pretrained`: the revision that was checked, whatever the hub has by then.

    Raises:
        OSError: other files would be read.
    """
    if _file(model, _ADAPTER, config) is not None:
        raise OSError(
            f"{model} has an adapter ({_ADAPTER}), which may be pickled: merge it into the weights"
        )
    named = getattr(config, "transformers_weights", None) or _INDEX
    index = named.removesuffix(".index.json") if isinstance(named, str) else ""
    if not _PLAIN.fullmatch(index):
        raise OSError(
            f"transformers_weights of {model} must name a *.safetensors of its folder, got "
            f"{str(named)[:100]!r}"
        )
    path = None if index == named else _file(model, named, config)
    if path is not None:
        _check_index(path)
    commit = _commit(config)
    return {} if commit is None else {"revision": commit}


def _check_index(path: Path) -> None:
    """Raise OSError if an index names other files than safetensors of its folder."""
    try:
        shards = set(json.loads(path.read_bytes())["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise OSError(f"{path} must be an index of weights, with a weight_map of names") from error
    others = [shard for shard in shards if not _PLAIN.fullmatch(str(shard))]
    if others:
        raise OSError(
            f"{path} must name *.safetensors of its folder only, as others may be pickled, got "
            f"{str(others[0])[:100]!r}"
        )


def _file(model: str, name: str, config: Any) -> Path | None:
    """Return a file of a model, or None if it has none of this name."""
    if Path(model).is_dir():
        path = Path(model) / name
        return path if path.is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(hf_hub_download(model, name, revision=_commit(config)))
    except EntryNotFoundError:
        return None


def _commit(config: Any) -> str | None:
    return getattr(config, "_commit_hash", None)
