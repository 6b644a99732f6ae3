"""Conversion of models of transformers."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from regard.models.weights.compared import check_alike, example_inputs

Model = TypeVar("Model", bound=nn.Module)


class Read(NamedTuple):
    """The arguments and the state dict of our class, read from a model of transformers."""

    arguments: dict[str, Any]
    weights: dict[str, Tensor]


def loaded(
    kind: Callable[..., Model], model: nn.Module, readers: Mapping[str, Callable[[Any], Read]]
) -> Model:
    """Make one of our models with a copy of the weights of a model of transformers.

    Device, dtype and training mode are those of the model. Both run once on a few inputs, to be
    compared.

    Args:
        kind: our class.
        model: the model of transformers.
        readers: the reader for each supported model type.

    Raises:
        ValueError: the model type or a setting is not supported, or the model computes something
            else than ours.
    """
    name = getattr(getattr(model, "config", None), "model_type", "")
    if name not in readers:
        known = " or ".join(f'"{kind}"' for kind in readers)
        found = f'"{name}"' if name else type(model).__name__
        raise ValueError(f"model must be a transformers model of type {known}, got {found}")
    arguments, weights = readers[name](model)
    example = next(iter(weights.values()))
    ours = kind(**arguments).to(device=example.device, dtype=example.dtype)
    ours.load_state_dict(weights)
    # Ours has no pooler, and a head on a decoder only.
    compared: Any = model if "head.weight" in weights else model.base_model
    check_alike(ours.eval(), compared, example_inputs(arguments, example))
    return ours.train(model.training)


def renamed(
    weights: Mapping[str, Tensor],
    names: Mapping[str, str],
    num_layers: int,
    *,
    apart: tuple[str, ...] = (),
) -> dict[str, Tensor]:
    """Return tensors under our names, and check that every tensor of a layer is used.

    Args:
        weights: a state dict.
        names: ours to theirs; `{}` stands for the number of each layer.
        num_layers: the number of layers.
        apart: substrings of tensors that are read elsewhere.

    Raises:
        ValueError: a tensor is missing, or unused, such as a bias or an adapter.
    """
    found: dict[str, Tensor] = {}
    left = {name for name in weights if _OF_A_LAYER.search(name)}
    left -= {name for name in left for part in apart if part in name}
    for ours, theirs in names.items():
        for layer in range(num_layers if "{}" in ours else 1):
            there = theirs.format(layer)
            if there not in weights:
                raise ValueError(f'the model has no tensor "{there}"')
            found[ours.format(layer)] = weights[there]
            left.discard(there)
    if left:
        raise ValueError(f'the model has a tensor "{min(left)}", which is not supported')
    return found


_OF_A_LAYER = re.compile(r"\.\d+\.|^lm_head\.")


def is_tied(model: Any) -> bool:
    """Return whether input and output embeddings are tied in the config, and are equal."""
    scoring = model.get_output_embeddings()
    if not model.config.tie_word_embeddings or scoring is None:
        return False
    embedding, head = model.get_input_embeddings().weight, scoring.weight
    return embedding is head or (not head.is_meta and torch.equal(embedding, head))


def with_biases(names: Mapping[str, str], *, biases: bool = True) -> dict[str, str]:
    """Return the names of weights and, unless `biases` is false, of biases."""
    kinds = ("weight", "bias") if biases else ("weight",)
    return {f"{ours}.{kind}": f"{names[ours]}.{kind}" for ours in names for kind in kinds}


def only(config: Any, **allowed: object) -> None:
    """Raise ValueError unless each of these settings, if the config has it, has the given value."""
    for name, value in allowed.items():
        if (found := getattr(config, name, value)) != value:
            raise ValueError(f"the model's config must have {name} = {value!r}, got {found!r}")


def choice(config: Any, setting: str, choices: Mapping[str, str]) -> str:
    """Return our name for a setting of a config, or raise ValueError if we have none."""
    found = getattr(config, setting)
    if found not in choices:
        names = ", ".join(f'"{name}"' for name in choices)
        raise ValueError(f"the model's config must have {setting} one of {names}, got {found!r}")
    return choices[found]


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
"""Our names of transformers' activations."""
