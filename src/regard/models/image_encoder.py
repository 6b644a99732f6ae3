"""ViT."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import check_positive
from regard.matrix import AttentionMatrix
from regard.models.stack import Stack, StackConfig
from regard.models.weights import convert, vit
from regard.positions import Learned


class ImageEncoder(nn.Module):
    """ViT: a transformer over the patches of an image (Dosovitskiy et al., 2021).

    The sequence is a learned class token, then the patches, row by row.

    Args:
        image_size: height and width of an image in pixels.
        patch_size: height and width of a patch, a divisor of `image_size`.
        model_dim: size of the vectors.
        num_layers: number of blocks.
        num_heads: number of heads of a block.
        num_channels: number of colour channels.
        hidden_dim: hidden size of the feed-forward layer; 4 · model_dim by default.
        activation: activation of the feed-forward layer; see `FeedForward`.
        norm_eps: epsilon of the norms.
        dropout: dropout probability of embeddings and residual branches.
        attention_dropout: dropout probability of attention weights.

    Raises:
        ValueError: sizes don't fit together, or a choice is unknown.

    >>> import torch
    >>> encoder = ImageEncoder(32, 8, model_dim=24, num_layers=2, num_heads=3).eval()
    >>> encoder(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 17, 24])
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        model_dim: int,
        num_layers: int,
        num_heads: int,
        *,
        num_channels: int = 3,
        hidden_dim: int | None = None,
        activation: str = "gelu",
        norm_eps: float = 1e-12,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(image_size=image_size, patch_size=patch_size, num_channels=num_channels)
        if image_size % patch_size:
            raise ValueError(
                f"image_size ({image_size}) must be a multiple of patch_size, got {patch_size}"
            )
        self.image_size = image_size

        # 1. Blocks.
        config = StackConfig(
            num_layers=num_layers,
            model_dim=model_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            activation=activation,
            norm_eps=norm_eps,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        self.layers = Stack(config)

        # 2. Embeddings of patches.
        self.patches = nn.Conv2d(num_channels, model_dim, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.zeros(model_dim))
        self.positions = Learned(1 + (image_size // patch_size) ** 2, model_dim)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(model_dim, eps=norm_eps)

    @classmethod
    def from_transformers(cls, model: nn.Module) -> "ImageEncoder":
        """Make an encoder with the weights of a ViT model of transformers.

        Args:
            model: a `ViTModel`, with or without a head. Head and pooler are ignored.

        Raises:
            ValueError: the model has another type, a setting that this class doesn't support, or
                computes something else than its config says.
        """
        return convert(cls, model, {"vit": vit})

    def embed(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return the input of the first block: the class token, then the patches.

        Args:
            images: [batch, channels, image_size, image_size].
        """
        expected = (self.patches.in_channels, self.image_size, self.image_size)
        if images.shape[1:] != expected:
            raise ValueError(
                f"images must have the shape [batch, {', '.join(map(str, expected))}], "
                f"got {list(images.shape)}"
            )
        patches = self.patches(images).flatten(start_dim=2).transpose(1, 2)
        first = self.class_token.expand(len(images), 1, -1)
        return self.dropout(torch.cat([first, patches], dim=1) + self.positions.table)

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch sequence model_dim"]:
        """Return the output of the class token and each patch, [batch, 1 + patches, model_dim].

        Args:
            images: [batch, channels, image_size, image_size].
        """
        return self.norm(self.layers(self.embed(images)))

    def states(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> list[Float[Tensor, "batch sequence model_dim"]]:
        """Return the embeddings and the output of each block, before the last norm."""
        return self.layers.states(self.embed(images))

    @torch.no_grad()
    def matrices(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> list[AttentionMatrix]:
        """Return the attention matrix of each block, without gradients."""
        return self.layers.matrices(self.embed(images))
