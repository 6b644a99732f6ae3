"""Sizes of small models of transformers, and weights that matter."""

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)

# Large weights, so that attention is far from uniform.
SIZES = {
    "num_hidden_layers": 2,
    "vocab_size": 50,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "intermediate_size": 36,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": 2,
}
_HIDDEN = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
# Of models without words.
HIDDEN = {name: SIZES[name] for name in _HIDDEN}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
BART = {
    "d_model": 28,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 31,
    "decoder_ffn_dim": 31,
    "init_std": 0.3,
    "vocab_size": 50,
    "pad_token_id": 2,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
T5 = {"d_model": 28, "num_layers": 2, "vocab_size": 50, "num_heads": 4, "d_kv": 8, "d_ff": 31}


def with_strong_biases(model: Model) -> Model:
    """Draw anew what starts at nothing or nearly so: T5's relative biases, and sinks."""
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.embedding_dim == 4:
            nn.init.normal_(module.weight)
        if hasattr(module, "sinks"):
            nn.init.normal_(module.sinks)
    return model
