"""The config of a model of somebody else, read without doing what it asks for."""

import re
from collections.abc import Iterator
from typing import Any

# Of each of these transformers makes an object, before it reads any weights.
_MOST = {
    re.compile(r"(.*_)?(layers?|depths?|blocks)"): 2**12,
    re.compile(r".*experts|num_labels"): 2**17,
}


def config_of(model: str, *, allow_remote_code: bool = False, **options: Any) -> Any:
    """Return the config of a model, with an attention of transformers' own choice.

    A config can name a kernel of the Hugging Face hub as its attention, which would be fetched and
    run. It is not asked for: whoever wants another attention says so.

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
        most = next((most for kind, most in _MOST.items() if kind.fullmatch(name)), count)
        if count > most:
            raise ValueError(
                f"{name} in the config of {model} must be at most {most:,}, got {count:,}"
            )
    found: Any = AutoConfig.from_pretrained(model, trust_remote_code=allow_remote_code, **options)
    _forget_attention(found)
    return found


def _numbers(data: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the numbers in a config, and in the configs in it, with their names."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int):
                yield str(name), one


def _forget_attention(config: Any) -> None:
    """Take out of a config, and of those in it, which attention to use."""
    config._attn_implementation = None
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None:
            _forget_attention(part)
