"""Small configurations, made from the classes of configurations themselves.

What a setting means is told by its name, in nearly all of transformers. All widths become one
width, so that parts which feed each other still fit.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from zoo import sizes

Settings = dict[str, Any]

_RULES: list[tuple[str, int]] = [
    (r"mamba_(n|num)_heads|mamba_(d_head|head_dim)", 8),
    (r"(mamba_)?n_groups", 2),
    (
        r"(.*_)?(num_)?(kv|key_value)_heads|multi_query_group_num|linear_num_key_heads",
        sizes.KEY_HEADS,
    ),
    (r"index_n_heads", 3),
    (r".*(attention_heads|num_heads|n_heads?|nhead)|heads|linear_num_value_heads", sizes.HEADS),
    (r"(kv|q|o)_lora_rank", 12),
    (r"qk_nope_head_dim", 6),
    (r"qk_head_dim", 14),
    (r"v_head_dim", 10),
    (r"rotary_dim", 4),
    (r".*(head_dim|head_size|d_kv|d_head|kv_channels|dim_head)", sizes.HEAD_DIM),
    (
        r".*(intermediate|inter|ffn|feed_?forward).*_?(size|dim|units)|d_ff|mlp_dim|n_inner|d_inner",
        sizes.INNER,
    ),
    (
        r".*(num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|depth"
        r"|hidden_layers)|layers|num_blocks|n_blocks",
        sizes.LAYERS,
    ),
    (r"(.*_)?vocab_size(_.*)?", sizes.VOCABULARY),
    (
        r"((num|n)_)?(local_|routed_)?experts|moe_num_experts|moe_num_routed_experts",
        sizes.EXPERTS,
    ),
    (
        r"((num|n)_)?experts_per_tok(en)?|moe_top_?k|moe_k|num_selected_experts",
        sizes.CHOSEN_EXPERTS,
    ),
    (r"n_group|topk_group|num_expert_group|num_limited_groups", 1),
    (r"max_source_positions", sizes.FRAMES // 2),
    (
        r"(.*_)?max_.*position.*|n_positions|n_ctx|max_sequence_length|max_seq_len|max_pos_emb"
        r"|seq_length|(.*_)?max_length|max_len",
        sizes.POSITIONS,
    ),
    (r"attention_window", sizes.WINDOW - 1),
    (
        r"sliding_window(_size)?|local_attention|.*local_window.*|attn_window_size|window",
        sizes.WINDOW,
    ),
    (
        r"window_size|block_size|chunk_size|attention_chunk_size|.*_chunk_len.*|n_window"
        r"|attention_block_size",
        sizes.BLOCK,
    ),
    (r"patch_size", sizes.PATCH),
    (r"num_mel_bins|n_mels|num_mel_channels|mel_bins", sizes.MEL_BINS),
    (
        r"num_quer(y|ies|y_tokens)(_tokens)?|num_latents|n_latents|resampler_n_latents|query_num"
        r"|index_topk",
        sizes.QUERIES,
    ),
    (
        r".*(hidden_size|d_model|n_embd|embed_dim|embed_size|hidden_dim|embedding_size"
        r"|embedding_dim|emb_dim|proj_dim|projection_dim|projection_size|out_dim|output_dim"
        r"|model_dim|dim_model|d_embed|hidden_dimension|latent_size|proj_size|feature_size|d_latents"
        r"|mask_feature_size|pooler_output_size|hidden_size_.*|condition_dim)|dim|width|embed_dims?",
        sizes.WIDTH,
    ),
    (r".*(state_size|d_state)", 8),
]
_COMPILED = [(re.compile(pattern), value) for pattern, value in _RULES]

_COUNTS_OF_STAGES = re.compile(r"depths?|.*layers|num_blocks|.*depths")
_WIDTHS_OF_STAGES = re.compile(r".*(hidden_sizes|embed_dims?|hidden_dims|conv_dim)|dims")
_HEADS_OF_STAGES = re.compile(r".*heads")
_TOKEN = re.compile(r".*(token_id|token_index|_token|token_ids)")
_KINDS = re.compile(
    r".*(layer_types|layers_block_type|layer_type_list|attention_types|block_types)"
)


class Shrinker:
    """Makes one tree of configurations small.

    Args:
        hints: settings to use instead, by name; those of a configuration inside by a dotted path.
    """

    def __init__(self, hints: Mapping[str, Any] | None = None) -> None:
        self._hints = dict(hints or {})
        self._tokens: dict[int, int] = {}

    def shrink(self, default: Any, path: str = "") -> Any:
        """Return a small configuration of the same kind.

        Args:
            default: the configuration as its class makes it.
            path: the dotted path to it, with a dot behind.
        """
        from transformers import PreTrainedConfig

        given = {field.name for field in dataclasses.fields(default)}
        small: Settings = {}
        for name, value in vars(default).items():
            hint = self._hints.get(path + name, self._hints.get("*." + name, _NONE))
            if hint is not _NONE:
                continue
            if isinstance(value, PreTrainedConfig):
                small[name] = self.shrink(value, f"{path}{name}.")
            elif name in given:
                changed = self._setting(default, name, value)
                if name == "rope_parameters" and isinstance(value, dict):
                    changed = _small_rope(default, value)
                if changed is not _NONE:
                    small[name] = changed
        small.update(self._kinds(default, small))
        for key, hint in self._hints.items():
            where, _, name = key.rpartition(".")
            known = name in given or name in vars(default)
            if (where == "*" and known) or f"{where}.".lstrip(".") == path:
                small[name] = hint(default) if callable(hint) else hint
        return type(default)(**{k: v for k, v in small.items() if v is not _DROP})

    def _setting(self, config: Any, name: str, value: Any) -> Any:
        if name == "head_dim" and value is None:
            return sizes.HEAD_DIM
        if isinstance(value, bool) or value is None:
            return _NONE
        if _TOKEN.fullmatch(name):
            if isinstance(value, int):
                return self._token(value)
            if isinstance(value, list | tuple) and all(isinstance(x, int) for x in value):
                return type(value)(self._token(x) for x in value)
            return _NONE
        if name == "image_size" or name.endswith("_image_size"):
            return _like(value, sizes.LARGE_IMAGE if _has_stages(config) else sizes.IMAGE)
        if name == "num_key_value_heads" and getattr(config, "kv_lora_rank", None):
            # Keys that are made from a few numbers are not shared by heads.
            return sizes.HEADS
        if isinstance(value, int):
            return _small(name, value)
        if isinstance(value, list | tuple) and value and all(type(x) is int for x in value):
            return _small_list(name, value)
        return _NONE

    def _token(self, value: int) -> int:
        if value < sizes.FIRST_WORD:
            return value
        # From the top, and the same wherever the same one is meant.
        return self._tokens.setdefault(value, sizes.VOCABULARY - 1 - len(self._tokens))

    def _kinds(self, default: Any, small: Settings) -> Settings:
        """Return lists with a word for each layer, so short that each word is there."""
        lists = {
            name: value
            for name, value in vars(default).items()
            if _KINDS.fullmatch(name)
            and isinstance(value, list | tuple)
            and value
            and all(isinstance(word, str) for word in value)
        }
        if not lists:
            return {}
        longest = max(len(dict.fromkeys(value)) for value in lists.values())
        count = max(sizes.LAYERS, longest)
        found: Settings = {}
        for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers"):
            if name in small:
                found[name] = count
        for name, value in lists.items():
            words = list(dict.fromkeys(value))
            found[name] = [words[min(i, len(words) - 1)] for i in range(count)]
        return found


_NONE: Any = object()
_DROP: Any = object()
DROP = _DROP
"""A hint: leave it to the class."""


def _small(name: str, value: int) -> Any:
    for pattern, small in _COMPILED:
        if pattern.fullmatch(name):
            return min(value, small) if value > 0 else _NONE
    return _NONE


def _has_stages(config: Any) -> bool:
    """Say whether a model halves its images again and again."""
    lists = (
        getattr(config, name, None) for name in ("depths", "hidden_sizes", "num_block_repeats")
    )
    return any(isinstance(one, list | tuple) for one in lists)


def _small_list(name: str, value: Any) -> Any:
    """Return the same with smaller numbers, in proportion."""
    kind = type(value)
    if _HEADS_OF_STAGES.fullmatch(name):
        first = 1 if value[0] == 1 else 2
        return kind(first * x // value[0] for x in value)
    if _COUNTS_OF_STAGES.fullmatch(name):
        return kind(min(x, 2) for x in value)
    if _WIDTHS_OF_STAGES.fullmatch(name):
        least = min(value)
        return kind(16 * x // least if least >= 16 else x for x in value)
    if name in ("patch_size", "tubelet_size"):
        return kind(min(x, sizes.PATCH) for x in value)
    if name == "window_size":
        return kind(min(x, sizes.BLOCK) for x in value)
    if name == "attention_window":
        return kind(min(x, sizes.WINDOW - 1) for x in value)[: sizes.LAYERS]
    return _NONE


def _like(value: Any, size: int) -> Any:
    if isinstance(value, int):
        return min(value, size)
    if isinstance(value, list | tuple):
        return type(value)(_like(x, size) for x in value)
    if isinstance(value, dict):
        return {key: _like(x, size) for key, x in value.items()}
    return value


def _small_rope(config: Any, value: Settings) -> Settings:
    """Return what a rotation is like, with its parts as large as those of small heads."""
    changed = {
        name: _small_rope(config, part) if isinstance(part, dict) else part
        for name, part in value.items()
    }
    ignored = getattr(config, "ignore_keys_at_rope_validation", None) or ()
    if "mrope_section" in ignored and "rope_theta" in changed:
        half = int(sizes.HEAD_DIM * changed.get("partial_rotary_factor", 1.0)) // 2
        changed["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]
    return changed
