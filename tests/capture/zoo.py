"""Small random models of many kinds, what they are called with, and the weights that they admit to.

Each is made twice from one seed: once with the attention that it has by itself, to be watched, and
once with eager attention, to be asked for its weights.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

from tests.small import BART, EXPERTS, GROUPED, HIDDEN, SIZES, T5, with_strong_biases

BATCH, LENGTH = 3, 23
LENGTHS = (23, 16, 5)

PICTURE = {"image_size": 24, "patch_size": 4}


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        model: its class.
        config: its configuration.
        inputs: what it is called with, given the side of the padding.
        parts: where the outputs have which weights: the path of a tuple with one tensor a layer, by
            what the names of the modules have in them.
        note: what is special about it.
        asks: whether it asks transformers for its attention, instead of computing it by itself;
            in older versions of transformers fewer do.
        attention: the attention that it has by itself, if older versions chose another.
    """

    model: Any
    config: Any
    inputs: Callable[[str], dict[str, Tensor]]
    parts: dict[str, str] = field(default_factory=lambda: {"": "attentions"})
    note: str = ""
    asks: bool = True
    attention: str | None = None


def tokens(seed: int = 5, length: int = LENGTH) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.randint(3, 50, (BATCH, length), generator=chance)


def real(side: str, length: int = LENGTH) -> Tensor:
    """Return which positions are no padding, [batch, length]."""
    where = torch.arange(length)
    counts = torch.tensor(LENGTHS)[:, None].clamp(max=length)
    if side == "none":
        counts = torch.full_like(counts, length)
    return (where >= length - counts if side == "left" else where < counts).long()


def text(side: str) -> dict[str, Tensor]:
    return {"input_ids": tokens(), "attention_mask": real(side)}


def two_texts(side: str) -> dict[str, Tensor]:
    target = 11
    return {
        **text(side),
        "decoder_input_ids": tokens(6, target),
        "decoder_attention_mask": real(side, target),
    }


def picture(side: str) -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(7)
    return {"pixel_values": torch.rand(BATCH, 3, 24, 24, generator=chance)}


def sound(side: str) -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(8)
    return {
        "input_features": torch.randn(BATCH, 8, 40, generator=chance),
        "decoder_input_ids": tokens(6, 11),
        "decoder_attention_mask": real(side, 11),
    }


TWO = {
    "encoder": "encoder_attentions",
    "decoder self": "decoder_attentions",
    "decoder cross": "cross_attentions",
}

ZOO = {
    "BERT": Kind(transformers.BertModel, transformers.BertConfig(**SIZES), text),
    "RoBERTa": Kind(transformers.RobertaModel, transformers.RobertaConfig(**SIZES), text),
    "DistilBERT": Kind(
        transformers.DistilBertModel,
        transformers.DistilBertConfig(
            n_layers=2, dim=24, n_heads=4, hidden_dim=36, vocab_size=50, initializer_range=0.3
        ),
        text,
    ),
    "ALBERT": Kind(
        transformers.AlbertModel,
        transformers.AlbertConfig(**SIZES, embedding_size=12),
        text,
        note="one layer, called again and again",
    ),
    "ModernBERT": Kind(
        transformers.ModernBertModel,
        transformers.ModernBertConfig(**SIZES, local_attention=8, global_attn_every_n_layers=2),
        text,
        note="window on both sides",
    ),
    "GPT-2": Kind(
        transformers.GPT2Model,
        transformers.GPT2Config(
            n_layer=2, n_embd=24, n_head=4, vocab_size=50, initializer_range=0.3, bos_token_id=0
        ),
        text,
    ),
    "Llama": Kind(
        transformers.LlamaModel, transformers.LlamaConfig(**GROUPED), text, note="grouped heads"
    ),
    "Mistral": Kind(
        transformers.MistralModel,
        transformers.MistralConfig(**GROUPED, sliding_window=9),
        text,
        note="sliding window",
    ),
    "Gemma 2": Kind(
        transformers.Gemma2Model,
        transformers.Gemma2Config(**GROUPED, sliding_window=9, attn_logit_softcapping=3.0),
        text,
        note="softcap, sliding window",
        # sdpa leaves softcaps out, where it does not refuse them.
        attention="eager",
    ),
    "Gemma 3": Kind(
        transformers.Gemma3TextModel,
        transformers.Gemma3TextConfig(**GROUPED, sliding_window=9, sliding_window_pattern=2),
        text,
        note="sliding window in some layers",
    ),
    "gpt-oss": Kind(
        transformers.GptOssModel,
        transformers.GptOssConfig(**GROUPED, **EXPERTS, sliding_window=9),
        text,
        note="sinks, sliding window",
    ),
    "Qwen 3": Kind(transformers.Qwen3Model, transformers.Qwen3Config(**GROUPED), text),
    "OPT": Kind(
        transformers.OPTModel,
        transformers.OPTConfig(**SIZES, ffn_dim=36, word_embed_proj_dim=24, init_std=0.3),
        text,
    ),
    "BLOOM": Kind(
        transformers.BloomModel,
        transformers.BloomConfig(
            n_layer=2, hidden_size=24, n_head=4, vocab_size=50, initializer_range=0.3
        ),
        text,
        note="ALiBi; eager only",
        asks=False,
    ),
    "GPT-NeoX": Kind(
        transformers.GPTNeoXModel, transformers.GPTNeoXConfig(**SIZES, rotary_pct=1.0), text
    ),
    "Falcon": Kind(
        transformers.FalconModel,
        transformers.FalconConfig(**SIZES, new_decoder_architecture=True, num_kv_heads=2),
        text,
        note="grouped heads",
        asks=False,
    ),
    "T5": Kind(
        transformers.T5Model,
        transformers.T5Config(**T5),
        two_texts,
        TWO,
        note="relative bias, cross-attention",
    ),
    "BART": Kind(
        transformers.BartModel, transformers.BartConfig(**BART), two_texts, TWO, "cross-attention"
    ),
    "Marian": Kind(
        transformers.MarianModel,
        transformers.MarianConfig(**BART),
        two_texts,
        TWO,
        "cross-attention",
    ),
    "Whisper": Kind(
        transformers.WhisperModel,
        transformers.WhisperConfig(
            **BART, num_mel_bins=8, max_source_positions=20, max_target_positions=30
        ),
        sound,
        TWO,
        note="sound; cross-attention",
    ),
    "ViT": Kind(
        transformers.ViTModel,
        transformers.ViTConfig(**HIDDEN, **PICTURE, initializer_range=0.3),
        picture,
    ),
    "CLIP": Kind(
        transformers.CLIPModel,
        transformers.CLIPConfig(
            text_config={**HIDDEN, "vocab_size": 50, "initializer_factor": 8.0},
            vision_config={**HIDDEN, **PICTURE, "initializer_factor": 8.0},
        ),
        lambda side: {**text(side), **picture(side)},
        {
            "text_model": "text_model_output.attentions",
            "vision_model": "vision_model_output.attentions",
        },
        note="two towers",
    ),
    "DeBERTa-v2": Kind(
        transformers.DebertaV2Model,
        transformers.DebertaV2Config(
            **SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=16
        ),
        text,
        note="eager only",
        asks=False,
    ),
    "MPNet": Kind(
        transformers.MPNetModel,
        transformers.MPNetConfig(**SIZES),
        text,
        note="eager only",
        asks=False,
    ),
    "XLNet": Kind(
        transformers.XLNetModel,
        transformers.XLNetConfig(
            n_layer=2, d_model=24, n_head=4, d_inner=36, vocab_size=50, initializer_range=0.3
        ),
        text,
        note="eager only",
        asks=False,
    ),
}


def made(kind: Kind, attention: str | None = None) -> Any:
    """Make a model; with the attention that it has by itself, if none is named."""
    torch.manual_seed(3)
    attention = attention or kind.attention
    chosen = {} if attention is None else {"attn_implementation": attention}
    model = kind.model._from_config(copy.deepcopy(kind.config), **chosen).eval()
    return with_strong_biases(model)


def admitted(kind: Kind, side: str) -> dict[str, list[Tensor]]:
    """Return the weights that the model returns under eager attention, by part."""
    model = made(kind, "eager")
    with torch.no_grad():
        outputs = model(**kind.inputs(side), output_attentions=True)
    found: dict[str, list[Tensor]] = {}
    for part, path in kind.parts.items():
        place: Any = outputs
        for name in path.split("."):
            place = getattr(place, name)
        found[part] = list(place)
    return found
