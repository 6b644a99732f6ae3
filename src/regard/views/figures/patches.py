"""The grid of patches of an image, and the tokens before them."""

from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

MOST_FIRST = 8
"""Largest number of tokens before the patches: class token, registers."""


def patch_grid(
    num_keys: int, patches: tuple[int, int] | None, first: int | None
) -> tuple[int, int, int]:
    """Return the number of tokens before the patches, and the rows and columns of patches.

    Args:
        num_keys: number of tokens.
        patches: rows and columns, if known.
        first: number of tokens before the patches, if known.

    Raises:
        ValueError: they don't fit, or are ambiguous.

    >>> patch_grid(197, None, None), patch_grid(13, (3, 4), None)
    ((1, 14, 14), (1, 3, 4))
    """
    if patches is not None:
        rows, columns = patches
        left = num_keys - rows * columns
        if left < 0 or (first is not None and first != left):
            before = "" if first is None else f" and {first} tokens before them"
            raise ValueError(f"{rows} × {columns} patches{before} don't fit {num_keys} keys")
        return left, rows, columns
    for count in range(MOST_FIRST + 1) if first is None else [first]:
        side = isqrt(max(0, num_keys - count))
        if side and side * side == num_keys - count:
            return count, side, side
    before = f"{first} tokens before them" if first is not None else "few tokens before them"
    raise ValueError(
        f"{num_keys} keys are no square of patches with {before}: pass rows and columns, "
        "such as patches=(12, 16)"
    )


def as_picture(image: Any) -> NDArray[Any]:
    """Return an image as numbers from 0 to 1, [height, width, 3].

    Args:
        image: a PIL image; or an array or tensor, [height, width, 3], [3, height, width] or
            [height, width], of integers up to 255 or of numbers from 0 to 1.
    """
    if isinstance(image, torch.Tensor):
        image = image.detach().cpu().float().numpy() if image.is_floating_point() else image.cpu()
    elif hasattr(image, "convert"):
        image = image.convert("RGB")
    pixels = np.asarray(image)
    shape = list(pixels.shape)
    if pixels.ndim == 3 and pixels.shape[2] not in (3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise ValueError(f"image must be [height, width, 3] or [3, height, width], got {shape}")
    pixels = np.broadcast_to(pixels[:, :, :3], (*pixels.shape[:2], 3))
    whole = np.issubdtype(pixels.dtype, np.integer)
    return np.clip(pixels / 255.0 if whole else pixels, 0.0, 1.0)
