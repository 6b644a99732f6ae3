"""Load a config, ignoring its attention kernel, and check which files its weights are in.

Both are for models of the hub, which may come from anyone: neither runs code that comes with the
model, unless that was allowed.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST_MODULES = {
    re.compile(r"(.*_)?(layers?|depths?|blocks)"): 2**12,
    re.compile(r".*experts|num_labels"): 2**17,
}
"""Largest numbers of modules. transformers makes all of them before it reads any weights."""

_INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"

_PLAIN = re.compile(r"[^/\\:]+\.safetensors")
"""A name in the folder of the model."""


def config_of(model: str, *, allow_remote_code: bool = False, **options: Any) -> Any:
    """Load the config of a model, ignoring its attention kernel.

    A config can name a kernel of the Hugging Face hub as its attention, which would be fetched and
    run. transformers chooses instead, unless the caller does.

    Args:
        model: a folder, or a name on the hub.
        allow_remote_code: whether Python files that come with the model may be run. If they may
            not, a model that needs them is refused, and nobody is asked.
        options: as for `AutoConfig.from_pretrained`.

    Raises:
        OSError: there is no config.
        ValueError: the model needs Python files of its own, or has too many layers.
    """
    from transformers import AutoConfig, PretrainedConfig

    # Before its config is made, which may list its layers.
    data, _ = PretrainedConfig.get_config_dict(model, **options)
    for name, count in _numbers(data):
        most = next((most for kind, most in _MOST_MODULES.items() if kind.fullmatch(name)), count)
        if count > most:
            raise ValueError(
                f"{name} in the config of {model} must be at most {most:,}, got {count:,}"
            )
    config: Any = AutoConfig.from_pretrained(model, trust_remote_code=allow_remote_code, **options)
    _forget_attention(config)
    return config


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


def _numbers(data: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the numbers in a config, and in the configs in it, with their names."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int):
                yield str(name), number


def _forget_attention(config: Any) -> None:
    """Remove the attention kernel from a config, and from those in it."""
    config._attn_implementation = None
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None:
            _forget_attention(part)


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
