"""The weights of Llama."""

from typing import Any

from regard.models.weights.loaded import Read, choice, is_tied, only, renamed, with_biases
from regard.positions import Rotary


def llama(model: Any) -> Read:
    """Read a `LlamaForCausalLM`, such as SmolLM."""
    config = model.config
    only(config, pretraining_tp=1, mlp_bias=config.attention_bias)
    turning = model.base_model.rotary_emb
    # These change their frequencies with the length of the text.
    moving = "dynamic" in turning.rope_type or turning.rope_type == "longrope"
    if moving or turning.attention_scaling != 1.0:
        raise ValueError(
            "the model's rotary frequencies must be fixed and unscaled, "
            f'got the rope type "{turning.rope_type}"'
        )
    frequencies = turning.inv_freq
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
        **with_biases(norms, biases=False),
        **with_biases(linear, biases=config.attention_bias),
    }
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
        "activation": choice(config, "hidden_act", {"silu": "swiglu", "gelu": "geglu"}),
        "projection_bias": config.attention_bias,
        "tied": is_tied(model),
        "attention_dropout": config.attention_dropout,
    }
    return Read(arguments, renamed(model.state_dict(), names, config.num_hidden_layers))
