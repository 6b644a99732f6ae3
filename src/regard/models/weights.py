"""Weights of transformers' models under our names: a reader for each supported model type.

A reader takes a model of transformers and returns the arguments and the state dict of our class.
`convert` makes our model from them, and compares the two. transformers is not imported.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from regard.models.compared import check_same_outputs, example_inputs
from regard.positions import Rotary

Model = TypeVar("Model", bound=nn.Module)

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
"""Our names of transformers' activations."""


class Conversion(NamedTuple):
    """The arguments and the state dict of our class, read from a model of transformers."""

    arguments: dict[str, Any]
    weights: dict[str, Tensor]


def convert(
    model_class: Callable[..., Model],
    original: nn.Module,
    readers: Mapping[str, Callable[[Any], Conversion]],
) -> Model:
    """Make one of our models with a copy of the weights of a model of transformers.

    Device, dtype and training mode are those of the original. Both run once on a few inputs, to be
    compared.

    Args:
        model_class: our class.
        original: the model of transformers.
        readers: the reader for each supported model type.

    Raises:
        ValueError: the model type or a setting is not supported, or the model computes something
            else than ours.
    """
    # 1. Read arguments and weights.
    model_type = getattr(getattr(original, "config", None), "model_type", "")
    if model_type not in readers:
        known = " or ".join(f'"{name}"' for name in readers)
        got = f'"{model_type}"' if model_type else type(original).__name__
        raise ValueError(f"model must be a transformers model of type {known}, got {got}")
    arguments, weights = readers[model_type](original)

    # 2. Make our model.
    example = next(iter(weights.values()))
    model = model_class(**arguments).to(device=example.device, dtype=example.dtype)
    model.load_state_dict(weights)

    # 3. Compare. Ours has no pooler, and a head on a decoder only.
    compared: Any = original if "head.weight" in weights else original.base_model
    check_same_outputs(model.eval(), compared, example_inputs(arguments, example))
    return model.train(original.training)


def bert(model: Any) -> Conversion:
    """Read a `BertModel`, or a model with a head on one."""
    config = model.config
    _only(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)

    layer = "encoder.layer.{}"
    names = {
        "embedding.tokens.weight": "embeddings.word_embeddings.weight",
        "embedding.types.weight": "embeddings.token_type_embeddings.weight",
        "embedding.positions.table": "embeddings.position_embeddings.weight",
        **_with_biases(
            {
                "norm": "embeddings.LayerNorm",
                "layers.{}.attention.query": f"{layer}.attention.self.query",
                "layers.{}.attention.key": f"{layer}.attention.self.key",
                "layers.{}.attention.value": f"{layer}.attention.self.value",
                "layers.{}.attention.output": f"{layer}.attention.output.dense",
                "layers.{}.attention_norm": f"{layer}.attention.output.LayerNorm",
                "layers.{}.feed_forward.up": f"{layer}.intermediate.dense",
                "layers.{}.feed_forward.down": f"{layer}.output.dense",
                "layers.{}.feed_forward_norm": f"{layer}.output.LayerNorm",
            }
        ),
    }

    arguments = _encoder_arguments(config) | {
        "vocabulary_size": config.vocab_size,
        "num_positions": config.max_position_embeddings,
        "num_types": config.type_vocab_size,
    }
    weights = model.base_model.state_dict()
    return Conversion(arguments, _renamed(weights, names, config.num_hidden_layers))


def gpt2(model: Any) -> Conversion:
    """Read a `GPT2LMHeadModel`."""
    config = model.config
    _only(
        config,
        add_cross_attention=False,
        embd_pdrop=config.resid_pdrop,
        scale_attn_by_inverse_layer_idx=False,
        scale_attn_weights=True,
    )

    # 1. Names of all but queries, keys and values.
    names = {
        "embedding.tokens.weight": "transformer.wte.weight",
        "embedding.positions.table": "transformer.wpe.weight",
        "head.weight": "lm_head.weight",
        **_with_biases(
            {
                "norm": "transformer.ln_f",
                "layers.{}.attention_norm": "transformer.h.{}.ln_1",
                "layers.{}.attention.output": "transformer.h.{}.attn.c_proj",
                "layers.{}.feed_forward_norm": "transformer.h.{}.ln_2",
                "layers.{}.feed_forward.up": "transformer.h.{}.mlp.c_fc",
                "layers.{}.feed_forward.down": "transformer.h.{}.mlp.c_proj",
            }
        ),
    }
    weights = model.state_dict()
    state = _renamed(weights, names, config.n_layer, apart=(".attn.c_attn.",))

    # 2. Queries, keys and values share one matrix.
    for layer in range(config.n_layer):
        for kind in ("weight", "bias"):
            joined: Tensor = weights[f"transformer.h.{layer}.attn.c_attn.{kind}"]
            parts = zip(("query", "key", "value"), joined.chunk(3, dim=-1), strict=True)
            state |= {f"layers.{layer}.attention.{part}.{kind}": piece for part, piece in parts}

    # 3. Its linear layers are transposed.
    linear = (".query.", ".key.", ".value.", ".output.", ".up.", ".down.")
    for name in state:
        if name.endswith("weight") and any(part in name for part in linear):
            state[name] = state[name].T

    arguments = {
        "vocabulary_size": config.vocab_size,
        "model_dim": config.n_embd,
        "num_layers": config.n_layer,
        "num_heads": config.n_head,
        "hidden_dim": config.n_inner,
        "num_positions": config.n_positions,
        "norm_eps": config.layer_norm_epsilon,
        "activation": _choice(config, "activation_function", ACTIVATIONS),
        "tied": _is_tied(model),
        "dropout": config.resid_pdrop,
        "attention_dropout": config.attn_pdrop,
    }
    return Conversion(arguments, state)


def llama(model: Any) -> Conversion:
    """Read a `LlamaForCausalLM`, such as SmolLM."""
    config = model.config
    _only(config, pretraining_tp=1, mlp_bias=config.attention_bias)

    # 1. Rotary frequencies. These types change them with the length of the text.
    rotary = model.base_model.rotary_emb
    is_fixed = "dynamic" not in rotary.rope_type and rotary.rope_type != "longrope"
    if not is_fixed or rotary.attention_scaling != 1.0:
        raise ValueError(
            "the model's rotary frequencies must be fixed and unscaled, "
            f'got the rope type "{rotary.rope_type}"'
        )
    frequencies = rotary.inv_freq

    # 2. Names.
    norms = {
        "norm": "model.norm",
        "layers.{}.attention_norm": "model.layers.{}.input_layernorm",
        "layers.{}.feed_forward_norm": "model.layers.{}.post_attention_layernorm",
    }
    linear = {
        "layers.{}.attention.query": "model.layers.{}.self_attn.q_proj",
        "layers.{}.attention.key": "model.layers.{}.self_attn.k_proj",
        "layers.{}.attention.value": "model.layers.{}.self_attn.v_proj",
        "layers.{}.attention.output": "model.layers.{}.self_attn.o_proj",
        "layers.{}.feed_forward.gate": "model.layers.{}.mlp.gate_proj",
        "layers.{}.feed_forward.up": "model.layers.{}.mlp.up_proj",
        "layers.{}.feed_forward.down": "model.layers.{}.mlp.down_proj",
    }
    names = {
        "embedding.tokens.weight": "model.embed_tokens.weight",
        "head.weight": "lm_head.weight",
        **_with_biases(norms, biases=False),
        **_with_biases(linear, biases=config.attention_bias),
    }

    # 3. Arguments.
    arguments = {
        "vocabulary_size": config.vocab_size,
        "model_dim": config.hidden_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "num_key_heads": config.num_key_value_heads,
        "key_dim": config.head_dim,
        "hidden_dim": config.intermediate_size,
        "position_encoding": Rotary(2 * len(frequencies), frequencies=frequencies.float()),
        "norm": "rms",
        "norm_eps": config.rms_norm_eps,
        "activation": _choice(config, "hidden_act", {"silu": "swiglu", "gelu": "geglu"}),
        "projection_bias": config.attention_bias,
        "tied": _is_tied(model),
        "attention_dropout": config.attention_dropout,
    }
    return Conversion(arguments, _renamed(model.state_dict(), names, config.num_hidden_layers))


def vit(model: Any) -> Conversion:
    """Read a `ViTModel`, or a model with a head on one."""
    config = model.config
    _only(config, qkv_bias=True)
    for name in ("image_size", "patch_size"):
        if not isinstance(size := getattr(config, name), int):
            raise ValueError(f"the model's config must have an integer {name}, got {size!r}")

    weights = model.base_model.state_dict()
    is_old = any(name.startswith("encoder.layer.") for name in weights)
    names = _with_biases(_VIT_NAMES | (_OLD_VIT_LAYERS if is_old else _VIT_LAYERS))
    state = _renamed(weights, names, config.num_hidden_layers)
    state["class_token"] = weights["embeddings.cls_token"][0, 0]
    state["positions.table"] = weights["embeddings.position_embeddings"][0]

    arguments = _encoder_arguments(config) | {
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "num_channels": config.num_channels,
    }
    return Conversion(arguments, state)


_VIT_NAMES = {"patches": "embeddings.patch_embeddings.projection", "norm": "layernorm"}
_VIT_LAYERS = {
    "layers.{}.attention.query": "layers.{}.attention.q_proj",
    "layers.{}.attention.key": "layers.{}.attention.k_proj",
    "layers.{}.attention.value": "layers.{}.attention.v_proj",
    "layers.{}.attention.output": "layers.{}.attention.o_proj",
    "layers.{}.attention_norm": "layers.{}.layernorm_before",
    "layers.{}.feed_forward_norm": "layers.{}.layernorm_after",
    "layers.{}.feed_forward.up": "layers.{}.mlp.fc1",
    "layers.{}.feed_forward.down": "layers.{}.mlp.fc2",
}
_OLD_VIT_LAYERS = {
    "layers.{}.attention.query": "encoder.layer.{}.attention.attention.query",
    "layers.{}.attention.key": "encoder.layer.{}.attention.attention.key",
    "layers.{}.attention.value": "encoder.layer.{}.attention.attention.value",
    "layers.{}.attention.output": "encoder.layer.{}.attention.output.dense",
    "layers.{}.attention_norm": "encoder.layer.{}.layernorm_before",
    "layers.{}.feed_forward_norm": "encoder.layer.{}.layernorm_after",
    "layers.{}.feed_forward.up": "encoder.layer.{}.intermediate.dense",
    "layers.{}.feed_forward.down": "encoder.layer.{}.output.dense",
}
"""The names of layers in older versions of transformers."""


def _encoder_arguments(config: Any) -> dict[str, Any]:
    """Return the arguments that BERT and ViT have under the same names."""
    return {
        "model_dim": config.hidden_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "hidden_dim": config.intermediate_size,
        "activation": _choice(config, "hidden_act", ACTIVATIONS),
        "norm_eps": config.layer_norm_eps,
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
    }


def _renamed(
    weights: Mapping[str, Tensor],
    names: Mapping[str, str],
    num_layers: int,
    *,
    apart: tuple[str, ...] = (),
) -> dict[str, Tensor]:
    """Return tensors under our names, and check that every tensor of a layer is used.

    Args:
        weights: a state dict.
        names: our names to the original ones; `{}` stands for the number of each layer.
        num_layers: the number of layers.
        apart: substrings of tensors that are read elsewhere.

    Raises:
        ValueError: a tensor is missing, or unused, such as a bias or an adapter.
    """
    unused = {name for name in weights if _OF_A_LAYER.search(name)}
    unused -= {name for name in unused for part in apart if part in name}

    renamed: dict[str, Tensor] = {}
    for name, original_name in names.items():
        for layer in range(num_layers if "{}" in name else 1):
            layer_name = original_name.format(layer)
            if layer_name not in weights:
                raise ValueError(f'the model has no tensor "{layer_name}"')
            renamed[name.format(layer)] = weights[layer_name]
            unused.discard(layer_name)

    if unused:
        raise ValueError(f'the model has a tensor "{min(unused)}", which is not supported')
    return renamed


_OF_A_LAYER = re.compile(r"\.\d+\.|^lm_head\.")


def _is_tied(model: Any) -> bool:
    """Return whether input and output embeddings are tied in the config, and are equal."""
    scoring = model.get_output_embeddings()
    if not model.config.tie_word_embeddings or scoring is None:
        return False
    embedding, head = model.get_input_embeddings().weight, scoring.weight
    return embedding is head or (not head.is_meta and torch.equal(embedding, head))


def _with_biases(names: Mapping[str, str], *, biases: bool = True) -> dict[str, str]:
    """Return the names of weights and, unless `biases` is false, of biases."""
    kinds = ("weight", "bias") if biases else ("weight",)
    return {f"{name}.{kind}": f"{names[name]}.{kind}" for name in names for kind in kinds}


def _only(config: Any, **allowed: object) -> None:
    """Raise ValueError unless each of these settings, if the config has it, has the given value."""
    for name, value in allowed.items():
        if (setting := getattr(config, name, value)) != value:
            raise ValueError(f"the model's config must have {name} = {value!r}, got {setting!r}")


def _choice(config: Any, setting: str, choices: Mapping[str, str]) -> str:
    """Return our name for a setting of a config, or raise ValueError if we have none."""
    name = getattr(config, setting)
    if name not in choices:
        names = ", ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"the model's config must have {setting} one of {names}, got {name!r}")
    return choices[name]
