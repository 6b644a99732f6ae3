"""The weights of BERT."""

from typing import Any

from regard.models.weights.loaded import ACTIVATIONS, Read, choice, only, renamed, with_biases


def bert(model: Any) -> Read:
    """Read a `BertModel`, or a model with a head on one."""
    config = model.config
    only(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    layer = "encoder.layer.{}"
    names = {
        "embedding.tokens.weight": "embeddings.word_embeddings.weight",
        "embedding.types.weight": "embeddings.token_type_embeddings.weight",
        "embedding.positions.table": "embeddings.position_embeddings.weight",
        **with_biases(
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
    arguments = {
        "vocabulary_size": config.vocab_size,
        "model_dim": config.hidden_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "hidden_dim": config.intermediate_size,
        "num_positions": config.max_position_embeddings,
        "num_types": config.type_vocab_size,
        "activation": choice(config, "hidden_act", ACTIVATIONS),
        "norm_eps": config.layer_norm_eps,
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
    }
    weights = model.base_model.state_dict()
    return Read(arguments, renamed(weights, names, config.num_hidden_layers))
