"""Small whole transformers, which run the weights of their Hugging Face counterparts.

- `TextEncoder`: BERT's shape. Everyone looks at everyone.
- `TextDecoder`: the shapes of GPT-2 and Llama. Everyone looks back, and text is generated.
- `ImageEncoder`: ViT's shape. A picture is cut into patches, which look at each other.
"""

from regard.models.image_encoder import ImageEncoder
from regard.models.text_decoder import TextDecoder
from regard.models.text_encoder import TextEncoder

__all__ = ["ImageEncoder", "TextDecoder", "TextEncoder"]
