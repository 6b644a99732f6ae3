import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTModel

from regard.models import ImageEncoder
from tests.models.cases import assert_drops, direction, gradients_off, lively, off, peak

BATCH, CHANNELS, SIZE, PATCH, MODEL_DIM = 3, 2, 15, 5, 28
IMAGES = torch.randn(
    BATCH, CHANNELS, SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
)


def vit_model(kind: type = ViTModel, **changes: object) -> torch.nn.Module:
    settings = {
        "hidden_size": MODEL_DIM,
        "num_hidden_layers": 3,
        "num_attention_heads": 7,
        "intermediate_size": 31,
        "image_size": SIZE,
        "patch_size": PATCH,
        "num_channels": CHANNELS,
        "attn_implementation": "eager",
    }
    return lively(kind(ViTConfig(**settings | changes))).eval()


@pytest.mark.parametrize(
    "changes", [{}, {"hidden_act": "relu"}, {"hidden_act": "gelu_new"}, {"layer_norm_eps": 0.5}]
)
def test_every_state_and_matrix(changes: dict[str, object]) -> None:
    theirs = vit_model(**changes)
    ours = ImageEncoder.from_transformers(theirs)
    images = IMAGES.float()
    expected = theirs(images, output_hidden_states=True, output_attentions=True)
    assert expected.last_hidden_state.shape == (BATCH, 1 + 9, MODEL_DIM)
    assert off(ours(images), expected.last_hidden_state) < 1e-5
    for found, state in zip(ours.states(images), expected.hidden_states, strict=True):
        assert off(found, state) < 1e-5
    for matrix, weights in zip(ours.matrices(images), expected.attentions, strict=True):
        assert peak(weights) > 1.5
        assert off(matrix.dense(), weights) < 1e-5


def test_every_state_in_float64() -> None:
    # Their eager softmax insists on float32.
    theirs = vit_model(attn_implementation="sdpa").double()
    ours = ImageEncoder.from_transformers(theirs)
    expected = theirs(IMAGES, output_hidden_states=True)
    assert off(ours(IMAGES), expected.last_hidden_state) < 1e-10
    for found, state in zip(ours.states(IMAGES), expected.hidden_states, strict=True):
        assert off(found, state) < 1e-10


def test_gradients() -> None:
    theirs = vit_model(attn_implementation="sdpa").double()
    ours = ImageEncoder.from_transformers(theirs)
    along = direction(torch.Size([BATCH, 10, MODEL_DIM]))
    (theirs(IMAGES).last_hidden_state * along).sum().backward()
    (ours(IMAGES) * along).sum().backward()
    assert gradients_off(ours, theirs) < 1e-10


def test_the_encoder_of_a_model_with_a_head() -> None:
    theirs = vit_model(ViTForImageClassification)
    ours = ImageEncoder.from_transformers(theirs)
    found = theirs.classifier(ours(IMAGES.float())[:, 0])
    assert off(found, theirs(IMAGES.float()).logits) < 1e-5


def test_dropout_is_taken_over() -> None:
    theirs = vit_model(hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.125).train()
    ours = ImageEncoder.from_transformers(theirs)
    assert_drops(ours, share=0.25, attention_share=0.125)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qkv_bias": False}, "config must have qkv_bias = True, got False"),
        ({"hidden_act": "tanh"}, "must have hidden_act one of \"gelu\", .*, got 'tanh'"),
    ],
)
def test_what_ours_has_not_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageEncoder.from_transformers(vit_model(**changes))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("changes", [{"image_size": (10, 15)}, {"patch_size": (3, 5)}])
def test_pictures_and_patches_that_are_not_square_are_refused(
    changes: dict[str, tuple[int, int]],
) -> None:
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name}, got"):
        ImageEncoder.from_transformers(vit_model(**changes))
