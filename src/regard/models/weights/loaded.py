"""From a model of transformers to one of ours."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


class Read(NamedTuple):
    """What was read from a model of transformers.

    Attributes:
        arguments: the arguments of our class.
        weights: the tensors of its state dict.
    """

    arguments: dict[str, Any]
    weights: dict[str, Tensor]


def loaded(
    kind: Callable[..., Model], model: nn.Module, readers: Mapping[str, Callable[[Any], Read]]
) -> Model:
    """Make one of our models with a copy of the weights of one of transformers'.

    Args:
        kind: our class.
        model: the model of transformers.
        readers: for each model type of transformers that our class can be, what reads it.

    Returns:
        Our model, on the device of theirs, with its dtype, and training if theirs was.

    Raises:
        ValueError: there is no reader for such a model, or it has something that ours has not.
    """
    name = getattr(getattr(model, "config", None), "model_type", "")
    if name not in readers:
        known = " or ".join(f'"{kind}"' for kind in readers)
        found = f'"{name}"' if name else type(model).__name__
        raise ValueError(f"model must be one of transformers' of the type {known}, got {found}")
    arguments, weights = readers[name](model)
    example = next(iter(weights.values()))
    ours = kind(**arguments).to(device=example.device, dtype=example.dtype)
    ours.load_state_dict(weights)
    return ours.train(model.training)


def renamed(
    weights: Mapping[str, Tensor],
    names: Mapping[str, str],
    num_layers: int,
    *,
    apart: tuple[str, ...] = (),
) -> dict[str, Tensor]:
    """Return tensors under our names, and make sure that no tensor of a layer is left over.

    Args:
        weights: a state dict.
        names: ours to theirs. A name with `{}` stands for that of every layer, where the number of
            the layer takes its place.
        num_layers: the number of layers.
        apart: parts of the names of tensors that are read apart.

    Raises:
        ValueError: there is no such tensor, or one that ours has not, such as a bias or an adapter.
    """
    found: dict[str, Tensor] = {}
    left = {name for name in weights if _OF_A_LAYER.search(name)}
    left -= {name for name in left for part in apart if part in name}
    for ours, theirs in names.items():
        for layer in range(num_layers if "{}" in ours else 1):
            there = theirs.format(layer)
            if there not in weights:
                raise ValueError(f'the model must have a tensor "{there}", and has none')
            found[ours.format(layer)] = weights[there]
            left.discard(there)
    if left:
        raise ValueError(f'the model has a tensor "{min(left)}", and ours has none like it')
    return found


_OF_A_LAYER = re.compile(r"\.\d+\.|^lm_head\.")


def is_tied(model: Any) -> bool:
    """Say whether a model embeds tokens by the very numbers by which it scores them.

    The config alone does not tell: weights may have been changed, or loaded apart.
    """
    scoring = model.get_output_embeddings()
    if not model.config.tie_word_embeddings or scoring is None:
        return False
    embedding, head = model.get_input_embeddings().weight, scoring.weight
    return embedding is head or (not head.is_meta and torch.equal(embedding, head))


def with_biases(names: Mapping[str, str], *, biases: bool = True) -> dict[str, str]:
    """Return the names of weights, and if wanted those of the biases beside them."""
    kinds = ("weight", "bias") if biases else ("weight",)
    return {f"{ours}.{kind}": f"{names[ours]}.{kind}" for ours in names for kind in kinds}


def only(config: Any, **allowed: object) -> None:
    """Raise ValueError if a config says something that our models have not.

    Args:
        config: a config of transformers.
        allowed: the one value that each setting may have, if the config has it at all.
    """
    for name, value in allowed.items():
        if (found := getattr(config, name, value)) != value:
            raise ValueError(f"the model's config must have {name} = {value!r}, got {found!r}")


def choice(config: Any, setting: str, choices: Mapping[str, str]) -> str:
    """Return our name for what a config chose.

    Raises:
        ValueError: we have none.
    """
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
