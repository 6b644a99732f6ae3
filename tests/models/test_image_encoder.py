import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import everyone
from regard.models import ImageEncoder
from tests.models.cases import assert_matrices_by_hand, lively, off

BATCH, CHANNELS, SIZE, PATCH, MODEL_DIM, NUM_HEADS = 2, 5, 12, 4, 21, 3
NUM_PATCHES = 9
IMAGES = torch.randn(
    BATCH, CHANNELS, SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
)
ROUNDING = 1e4 * torch.finfo(torch.float64).eps


def encoder_of(**options: object) -> ImageEncoder:
    settings = {"num_channels": CHANNELS, "hidden_dim": 31} | options
    model = ImageEncoder(SIZE, PATCH, MODEL_DIM, 2, NUM_HEADS, **settings)
    return lively(model).double().eval()


def patches_of(images: Tensor) -> Tensor:
    """Cut pictures into patches, row by row: [batch, patch, channels, height, width]."""
    rows = [
        images[:, :, top : top + PATCH, left : left + PATCH]
        for top in range(0, SIZE, PATCH)
        for left in range(0, SIZE, PATCH)
    ]
    return torch.stack(rows, dim=1)


def shuffled(images: Tensor, order: list[int]) -> Tensor:
    """Put pictures together again with their patches in another order."""
    parts = patches_of(images)[:, order]
    rows = [torch.cat(list(parts[:, i : i + 3].unbind(dim=1)), dim=-1) for i in (0, 3, 6)]
    return torch.cat(rows, dim=-2)


def test_the_class_token_then_the_patches_row_by_row() -> None:
    model = encoder_of()
    x = model.embed(IMAGES)
    assert x.shape == (BATCH, 1 + NUM_PATCHES, MODEL_DIM)
    first = model.class_token + model.positions.table[0]
    assert off(x[:, 0], first.expand(BATCH, -1)) < ROUNDING
    weight = model.patches.weight.flatten(start_dim=1)
    flat = patches_of(IMAGES).flatten(start_dim=2)
    by_hand = flat @ weight.T + model.patches.bias + model.positions.table[1:]
    assert off(x[:, 1:], by_hand) < ROUNDING
    assert torch.equal(model.states(IMAGES)[0], x)


@given(order=st.permutations(range(NUM_PATCHES)))
def test_shuffled_patches(order: list[int]) -> None:
    """Without positions shuffled patches give shuffled vectors; with positions they don't."""
    moved, where = shuffled(IMAGES, order), [0, *(1 + patch for patch in order)]
    with torch.no_grad():
        model = encoder_of()
        table = model.positions.table
        # A table that goes along with the patches.
        known = model(IMAGES)
        table.copy_(table[where].clone())
        assert off(model(moved), known[:, where]) < ROUNDING
        table.zero_()
        assert off(model(moved), model(IMAGES)[:, where]) < ROUNDING


def test_positions_count() -> None:
    order = torch.randperm(NUM_PATCHES, generator=torch.Generator().manual_seed(0)).tolist()
    model = encoder_of()
    where = [0, *(1 + patch for patch in order)]
    assert off(model(shuffled(IMAGES, order)), model(IMAGES)[:, where]) > 1e-3


@pytest.mark.parametrize("hidden_dim", [31, 0])
def test_matrices_by_hand(hidden_dim: int) -> None:
    model = encoder_of(hidden_dim=hidden_dim)
    states = model.states(IMAGES)
    assert_matrices_by_hand(model.layers, states, model.matrices(IMAGES), everyone())
    assert torch.equal(model.norm(states[-1]), model(IMAGES))


def test_attention_alone_makes_the_whole_block() -> None:
    model = encoder_of(hidden_dim=0)
    assert not any("feed_forward" in name for name, _ in model.named_parameters())
    states = model.states(IMAGES)
    for block, before, after in zip(model.layers, states, states[1:], strict=False):
        x = block.attention_norm(before)
        value = block.attention.value(x).unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)
        seen = (block.matrix(before).dense() @ value).transpose(1, 2).flatten(start_dim=2)
        assert off(after, before + block.attention.output(seen)) < ROUNDING


def test_a_state_dict_brings_all_there_is() -> None:
    model = encoder_of()
    other = ImageEncoder(SIZE, PATCH, MODEL_DIM, 2, NUM_HEADS, num_channels=CHANNELS, hidden_dim=31)
    other.double().load_state_dict(model.state_dict())
    assert torch.equal(other(IMAGES), model(IMAGES))
    assert torch.equal(copy.deepcopy(model)(IMAGES), model(IMAGES))


def test_dropout_only_in_training() -> None:
    model = encoder_of(dropout=0.3, attention_dropout=0.2)
    assert torch.equal(model(IMAGES), encoder_of()(IMAGES))
    torch.manual_seed(0)
    model.train()
    assert off(model(IMAGES), model(IMAGES)) > 1e-3


def test_it_learns() -> None:
    """Tell by the class token which patch of a picture is bright."""
    torch.manual_seed(0)
    images = 0.1 * torch.randn(NUM_PATCHES, 1, SIZE, SIZE)
    for patch in range(NUM_PATCHES):
        top, left = PATCH * (patch // 3), PATCH * (patch % 3)
        images[patch, :, top : top + PATCH, left : left + PATCH] += 1
    model = ImageEncoder(SIZE, PATCH, MODEL_DIM, 2, NUM_HEADS, num_channels=1)
    judge = nn.Linear(MODEL_DIM, NUM_PATCHES)
    optimizer = torch.optim.Adam([*model.parameters(), *judge.parameters()], lr=3e-3)
    losses: list[float] = []
    for _ in range(40):
        optimizer.zero_grad()
        said = judge(model(images)[:, 0])
        loss = nn.functional.cross_entropy(said, torch.arange(NUM_PATCHES))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 0}, "image_size must be at least 1, got 0"),
        ({"patch_size": -4}, "patch_size must be at least 1, got -4"),
        ({"num_channels": 0}, "num_channels must be at least 1, got 0"),
        ({"patch_size": 5}, r"image_size \(12\) must be a multiple of patch_size, got 5"),
        ({"model_dim": 0}, "model_dim must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_heads": 4}, r"model_dim \(21\) must be a multiple of num_heads .*, got 4 heads"),
        ({"activation": "tanh"}, 'activation must be one of "relu", .*, got "tanh"'),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_refusals(changes: dict[str, object], message: str) -> None:
    settings = {
        "image_size": SIZE,
        "patch_size": PATCH,
        "model_dim": MODEL_DIM,
        "num_layers": 2,
        "num_heads": NUM_HEADS,
    }
    with pytest.raises(ValueError, match=f"^{message}$"):
        ImageEncoder(**settings | changes)


@pytest.mark.parametrize("shape", [(2, 5, 12, 8), (2, 5, 16, 16), (2, 3, 12, 12)])
def test_other_pictures_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        encoder_of()(torch.zeros(shape, dtype=torch.float64))
    assert str(raised.value) == (
        f"images must have the shape [batch, 5, 12, 12], got {list(shape)}"
    )
