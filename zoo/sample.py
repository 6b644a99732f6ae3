"""The types that CI runs: quick ones, of every kind, with the verdict that each has."""

SAMPLE: dict[str, str] = {
    # Decoders.
    "bloom": "exact",
    "deepseek_v3": "exact",
    "deepseek_v4": "exact",
    "falcon": "exact",
    "gemma2": "exact",
    "gpt2": "exact",
    "gpt_neo": "exact",
    "gpt_oss": "exact",
    "hy_v4": "exact",
    "llama": "exact",
    "mistral": "exact",
    "opt": "exact",
    "xglm": "exact",
    # Encoders.
    "albert": "exact",
    "bert": "exact",
    "big_bird": "refused",
    "convbert": "heads unknown",
    "deberta-v2": "exact",
    "longformer": "refused",
    "modernbert": "exact",
    "mpnet": "exact",
    "reformer": "refused",
    "xlnet": "exact",
    # One text for another.
    "bart": "exact",
    "fsmt": "exact",
    "led": "refused",
    "longt5": "refused",
    "mvp": "exact",
    "t5": "exact",
    # Images.
    "clip_vision_model": "exact",
    "detr": "exact",
    "segformer": "exact",
    "swin": "exact",
    "swinv2": "understood",
    "vit": "exact",
    # Sound, and numbers in time.
    "audio-spectrogram-transformer": "exact",
    "decision_transformer": "exact",
    "wav2vec2": "exact",
    # No attention.
    "fnet": "no attention",
    "mamba2": "no attention",
}
