"""Small text decoders with positions and patterns of all kinds."""

import torch

from regard.models import TextDecoder
from regard.models.stack import PositionEncoding
from regard.positions import Rotary, softcap
from tests.models.cases import lively, tokens_of

VOCABULARY, MODEL_DIM, NUM_HEADS, KEY_DIM, LENGTH = 37, 20, 6, 4, 13
TOKENS = tokens_of(3, LENGTH, vocabulary=VOCABULARY)

ORDERS: dict[str, PositionEncoding] = {
    "learned": "learned",
    "sinusoidal": "sinusoidal",
    "rotary": "rotary",
    "alibi": "alibi",
    "relative": "relative",
    "none": None,
    "half rotary": Rotary(2, base=50.0, interleaved=True),
    "softcap": softcap(1.5),
}


def decoder_of(
    positions: PositionEncoding = "learned", seed: int = 0, **options: object
) -> TextDecoder:
    settings = {"hidden_dim": 31, "num_positions": 41, "key_dim": KEY_DIM} | options
    model = TextDecoder(
        VOCABULARY, MODEL_DIM, 2, NUM_HEADS, position_encoding=positions, **settings
    )
    return lively(model, seed).double().eval()


def writer_of(positions: PositionEncoding = "rotary", **options: object) -> TextDecoder:
    """Make a model that does not repeat one token over and over, as others do at random.

    Its head scores a token by the embedding of the one before it: it tends to count.
    """
    model = decoder_of(positions, tied=False, **options)
    with torch.no_grad():
        model.head.weight.copy_(model.embedding.tokens.weight.roll(1, dims=0))
    return model
