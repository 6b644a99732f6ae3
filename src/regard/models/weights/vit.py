"""The weights of ViT."""

from typing import Any

from regard.models.weights.loaded import ACTIVATIONS, Read, choice, only, renamed, with_biases


def vit(model: Any) -> Read:
    """Read a `ViTModel`, or a model with a head on one."""
    config = model.config
    only(config, qkv_bias=True)
    for name in ("image_size", "patch_size"):
        if not isinstance(size := getattr(config, name), int):
            raise ValueError(f"the model's config must have an integer {name}, got {size!r}")
    weights = model.base_model.state_dict()
    old = any(name.startswith("encoder.layer.") for name in weights)
    names = with_biases(_NAMES | (_OLD_LAYERS if old else _LAYERS))
    found = renamed(weights, names, config.num_hidden_layers)
    found["class_token"] = weights["embeddings.cls_token"][0, 0]
    found["positions.table"] = weights["embeddings.position_embeddings"][0]
    arguments = {
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "model_dim": config.hidden_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "num_channels": config.num_channels,
        "hidden_dim": config.intermediate_size,
        "activation": choice(config, "hidden_act", ACTIVATIONS),
        "norm_eps": config.layer_norm_eps,
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
    }
    return Read(arguments, found)


_NAMES = {"patches": "embeddings.patch_embeddings.projection", "norm": "layernorm"}
_LAYERS = {
    "layers.{}.attention.query": "layers.{}.attention.q_proj",
    "layers.{}.attention.key": "layers.{}.attention.k_proj",
    "layers.{}.attention.value": "layers.{}.attention.v_proj",
    "layers.{}.attention.output": "layers.{}.attention.o_proj",
    "layers.{}.attention_norm": "layers.{}.layernorm_before",
    "layers.{}.feed_forward_norm": "layers.{}.layernorm_after",
    "layers.{}.feed_forward.up": "layers.{}.mlp.fc1",
    "layers.{}.feed_forward.down": "layers.{}.mlp.fc2",
}
_OLD_LAYERS = {
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
