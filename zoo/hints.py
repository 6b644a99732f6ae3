"""What can't be told by the names of settings and arguments, for the odd ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from zoo import sizes


@dataclass(frozen=True)
class Hint:
    """What is special about a type.

    Attributes:
        config: settings, by name; those of a configuration inside by a dotted path, "*." for all.
        model: the name of the class, if it is another one than the usual.
        inputs: arguments, or functions of an `InputMaker` that return them.
        omit: arguments to leave out.
        gain: how strong the weights are; see `strengthen`.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    gain: float = 1.5


def _small_resnet(default: Any) -> Any:
    """Return a backbone that needs no other package."""
    from transformers import ResNetConfig

    widths = [16, 16, 24, 32]
    return ResNetConfig(
        embedding_size=16,
        hidden_sizes=widths,
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )


def _as_it_is(default: Any) -> Any:
    return default.backbone_config


def _times(maker: Any, *shape: int) -> Any:
    return maker.numbers(sizes.BATCH, *shape)


# Their backbones make large numbers, and large scores are rounded more.
_DETR = Hint(
    {"backbone_config": _small_resnet, "use_timm_backbone": False, "backbone": None}, gain=1.0
)
_OWN_BACKBONE = Hint({"backbone_config": _as_it_is})
_FORECAST = Hint(
    {"prediction_length": 6, "context_length": 10, "num_time_features": 2},
    inputs={
        "past_values": lambda maker: _times(maker, 17),
        "past_time_features": lambda maker: _times(maker, 17, 2),
        "past_observed_mask": lambda maker: torch.ones(sizes.BATCH, 17),
        "future_values": lambda maker: _times(maker, 6),
        "future_time_features": lambda maker: _times(maker, 6, 2),
    },
)
_CODEBOOKS = Hint(
    inputs={"input_ids": lambda maker: maker.tokens().repeat(4, 1)}, omit=("attention_mask",)
)

HINTS: dict[str, Hint] = {
    # Text.
    "bamba": Hint({"attn_layer_indices": [1]}),
    "big_bird": Hint({"block_size": 2, "num_random_blocks": 1}),
    "bigbird_pegasus": Hint({"block_size": 2, "num_random_blocks": 1}),
    "bros": Hint({"hidden_size": 64}),
    "dbrx": Hint({"attn_config": {"kv_n_heads": 2}, "ffn_config": {"ffn_hidden_size": 44}}),
    "deepseek_v2": Hint({"num_experts_per_tok": 2}),
    "esm": Hint({"vocab_size": sizes.VOCABULARY, "pad_token_id": 1, "mask_token_id": 4}),
    "falcon_h1": Hint({"mamba_d_ssm": 64}),
    "gpt_neo": Hint({"attention_types": [[["global", "local"], 1]]}),
    "granitemoehybrid": Hint({"layer_types": ["mamba", "attention"]}),
    "jamba": Hint({"attn_layer_period": 2, "attn_layer_offset": 1}),
    "layoutlmv3": Hint({"coordinate_size": 6, "shape_size": 4}),
    "lilt": Hint({"hidden_size": 48, "max_2d_position_embeddings": 128}),
    "mamba2": Hint({"num_heads": 8}),
    "musicgen_decoder": _CODEBOOKS,
    "musicgen_melody_decoder": _CODEBOOKS,
    "reformer": Hint(
        {
            "axial_pos_embds_dim": (16, 16),
            "axial_pos_shape": (8, 16),
            "attn_layers": ["local", "lsh"],
            "num_buckets": 4,
        }
    ),
    # Without norms, numbers grow, and so does their rounding.
    "mobilebert": Hint(gain=1.0),
    "xmod": Hint({"default_language": "en_XX"}),
    # Images.
    "conditional_detr": _DETR,
    "dab-detr": _DETR,
    "deformable_detr": Hint({**_DETR.config, "num_feature_levels": 3}, gain=1.0),
    "detr": _DETR,
    "d_fine": _OWN_BACKBONE,
    "pp_doclayout_v3": _OWN_BACKBONE,
    "rt_detr": _OWN_BACKBONE,
    "rt_detr_v2": _OWN_BACKBONE,
    "table-transformer": _DETR,
    "owlv2": Hint({"text_config.max_position_embeddings": 128}),
    "owlv2_text_model": Hint({"max_position_embeddings": 128}),
    "owlvit": Hint({"text_config.max_position_embeddings": 128}),
    "owlvit_text_model": Hint({"max_position_embeddings": 128}),
    "lxmert": Hint(
        inputs={
            "visual_feats": lambda maker: _times(maker, 5, maker.config.visual_feat_dim),
            "visual_pos": lambda maker: _times(maker, 5, 4),
        }
    ),
    "donut-swin": Hint({"window_size": 2}),
    "swin": Hint({"window_size": 2}),
    "vitpose": Hint({"backbone_config.patch_size": [8, 8]}),
    "vitpose_backbone": Hint({"patch_size": [8, 8]}),
    # Sound.
    "csm": Hint({"codec_config.upsample_groups": 32}),
    "granite_speech": Hint({"*.context_size": 16}),
    "granite_speech_encoder": Hint({"context_size": 16}),
    "granite_speech_plus": Hint({"*.context_size": 16}),
    "granite_speech_plus_encoder": Hint({"context_size": 16}),
    "mimi": Hint({"upsample_groups": 32}),
    "vits": Hint({"upsample_initial_channel": 32, "flow_size": 16, "upsample_rates": [2, 2, 2, 2]}),
    "sam3_lite_text_text_model": Hint({"num_hidden_layers": 4}),
    # Time series, and what is done in games.
    "autoformer": _FORECAST,
    "informer": _FORECAST,
    "time_series_transformer": _FORECAST,
    "decision_transformer": Hint(
        inputs={
            "states": lambda maker: _times(maker, sizes.LENGTH, maker.config.state_dim),
            "actions": lambda maker: _times(maker, sizes.LENGTH, maker.config.act_dim),
            "rewards": lambda maker: _times(maker, sizes.LENGTH, 1),
            "returns_to_go": lambda maker: _times(maker, sizes.LENGTH, 1),
            "timesteps": lambda maker: torch.arange(sizes.LENGTH).repeat(sizes.BATCH, 1),
        },
        omit=("attention_mask",),
    ),
    "patchtst": Hint(gain=1.0),
    "perceiver": Hint(inputs={"inputs": lambda maker: _times(maker, sizes.LENGTH, sizes.WIDTH)}),
}
