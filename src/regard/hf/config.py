"""The config of a model of somebody else, read without doing what it asks for."""

from typing import Any


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
        ValueError: the model needs Python files of its own.
    """
    from transformers import AutoConfig

    found: Any = AutoConfig.from_pretrained(model, trust_remote_code=allow_remote_code, **options)
    _forget_attention(found)
    return found


def _forget_attention(config: Any) -> None:
    """Take out of a config, and of those in it, which attention to use."""
    config._attn_implementation = None
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None:
            _forget_attention(part)
