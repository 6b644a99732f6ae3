"""Which types of models there are, and the class of each."""

import importlib
import pkgutil
from functools import cache
from typing import Any

_AUTO = (
    "PRETRAINING",
    "CAUSAL_LM",
    "MASKED_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
)
"""Tasks whose classes are preferred where a type has no model without a task."""


@cache
def names() -> list[str]:
    """Return all types: those with a model first, then those that are a part of another."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    others = [name for name in CONFIG_MAPPING_NAMES if name not in MODEL_MAPPING_NAMES]
    return [*MODEL_MAPPING_NAMES, *others]


def config_class(name: str) -> Any:
    """Return the class of a type's configuration."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[name]


def model_class(name: str, preferred: str = "") -> Any:
    """Return the class of a type's model, the one without a head if there is one.

    Args:
        name: the type.
        preferred: the name of another class of the same type.

    Raises:
        LookupError: no class has such a configuration.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    if preferred:
        found = getattr(transformers, preferred, None)
        return found if found is not None else _classes(name)[preferred]
    mappings = {
        key: value for key, value in vars(modeling_auto).items() if key.endswith("_MAPPING_NAMES")
    }
    ordered = ["MODEL_MAPPING_NAMES", *(f"MODEL_FOR_{task}_MAPPING_NAMES" for task in _AUTO)]
    ordered += [key for key in mappings if key not in ordered and key != "CONFIG_MAPPING_NAMES"]
    for key in ordered:
        chosen = mappings[key].get(name)
        if chosen:
            return getattr(transformers, chosen if isinstance(chosen, str) else chosen[0])
    found = _classes(name)
    if not found:
        raise LookupError("no model class has this configuration: it is a part of others")
    best = [one for one in found if one.endswith("Model")] or list(found)
    return found[best[0]]


def _classes(name: str) -> dict[str, Any]:
    """Return the models that have a type's configuration, by name."""
    from transformers import PreTrainedModel
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    package = importlib.import_module(f"transformers.models.{model_type_to_module_name(name)}")
    config = config_class(name)
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("modeling_"):
            loaded = importlib.import_module(f"{package.__name__}.{module.name}")
            found |= {
                key: value
                for key, value in vars(loaded).items()
                if isinstance(value, type)
                and issubclass(value, PreTrainedModel)
                and value.__module__ == loaded.__name__
                and getattr(value, "config_class", None) is config
                and not key.endswith("PreTrainedModel")
            }
    return found
