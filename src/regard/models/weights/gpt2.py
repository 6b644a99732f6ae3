"""The weights of GPT-2."""

from typing import Any

from torch import Tensor

from regard.models.weights.loaded import (
    ACTIVATIONS,
    Read,
    choice,
    is_tied,
    only,
    renamed,
    with_biases,
)


def gpt2(model: Any) -> Read:
    """Read a `GPT2LMHeadModel`."""
    config = model.config
    only(
        config,
        add_cross_attention=False,
        embd_pdrop=config.resid_pdrop,
        scale_attn_by_inverse_layer_idx=False,
        scale_attn_weights=True,
    )
    names = {
        "embedding.tokens.weight": "transformer.wte.weight",
        "embedding.positions.table": "transformer.wpe.weight",
        "head.weight": "lm_head.weight",
        **with_biases(
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
    found = renamed(weights, names, config.n_layer, apart=(".attn.c_attn.",))
    for layer in range(config.n_layer):
        # Queries, keys and values share one matrix.
        for kind in ("weight", "bias"):
            joined: Tensor = weights[f"transformer.h.{layer}.attn.c_attn.{kind}"]
            parts = zip(("query", "key", "value"), joined.chunk(3, dim=-1), strict=True)
            found |= {f"layers.{layer}.attention.{part}.{kind}": piece for part, piece in parts}
    # GPT-2's linear layers are transposed.
    linear = (".query.", ".key.", ".value.", ".output.", ".up.", ".down.")
    for name in found:
        if name.endswith("weight") and any(part in name for part in linear):
            found[name] = found[name].T
    arguments = {
        "vocabulary_size": config.vocab_size,
        "model_dim": config.n_embd,
        "num_layers": config.n_layer,
        "num_heads": config.n_head,
        "hidden_dim": config.n_inner,
        "num_positions": config.n_positions,
        "norm_eps": config.layer_norm_epsilon,
        "activation": choice(config, "activation_function", ACTIVATIONS),
        "tied": is_tied(model),
        "dropout": config.resid_pdrop,
        "attention_dropout": config.attn_pdrop,
    }
    return Read(arguments, found)
