"""Small transformers that can load the weights of their Hugging Face counterparts.

- `TextEncoder`: BERT; bidirectional.
- `TextDecoder`: GPT-2 and Llama; causal, generates text.
- `ImageEncoder`: ViT; attention between patches of an image.
"""

from regard.models.image_encoder import ImageEncoder
from regard.models.text_decoder import TextDecoder
from regard.models.text_encoder import TextEncoder

__all__ = ["ImageEncoder", "TextDecoder", "TextEncoder"]
