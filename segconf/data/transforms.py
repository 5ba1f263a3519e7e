"""Views of an image: the paper's random augmentation, and the normalisation of the encoder."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segconf.config.schema import AugmentationConfig
from segconf.conventions import IGNORE

Pixels = np.ndarray[tuple[int, ...], np.dtype[Any]]


def _library() -> Any:
    """Albumentations, which only a training needs."""
    # Without it the library asks the network for a newer version when it is imported.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    import albumentations

    return albumentations


def training_transform(size: tuple[int, int], augmentation: AugmentationConfig) -> Any:
    """Random zoom, rotation, padded crop, flips and colour, for images of the network's size."""
    albumentations = _library()
    height, width = size
    low, high = augmentation.scale
    degrees = augmentation.rotation
    rotation = [albumentations.Rotate(degrees, fill=0, fill_mask=IGNORE, p=1)]
    return albumentations.Compose(
        [
            albumentations.RandomScale((low - 1, high - 1), p=1),
            *(rotation if degrees else []),
            *_padding(augmentation.padding),
            albumentations.PadIfNeeded(height, width, fill=0, fill_mask=IGNORE),
            albumentations.RandomCrop(height, width),
            albumentations.HorizontalFlip(p=augmentation.horizontal_flip),
            albumentations.VerticalFlip(p=augmentation.vertical_flip),
            *_colours(augmentation.color_jitter),
        ]
    )


def _padding(pixels: int) -> list[Any]:
    """Black pixels on every side; none where it is off."""
    return [_library().Pad(pixels, fill=0, fill_mask=IGNORE)] if pixels else []


def _colours(jitter: float) -> list[Any]:
    """Random changes of colour; none where it is off."""
    if not jitter:
        return []
    return [
        _library().ColorJitter(
            brightness=jitter, contrast=jitter, saturation=jitter, hue=jitter / 10, p=1
        )
    ]


def colour_transform(augmentation: AugmentationConfig) -> Any:
    """The colours of augmented views, in place."""
    return _library().Compose(_colours(augmentation.color_jitter))


def recoloured(transform: Any, image: Pixels, *, seed: int) -> Pixels:
    """The image (H, W, C) in the colours that belong to a seed."""
    transform.set_random_seed(seed)
    view: Pixels = transform(image=np.ascontiguousarray(image))["image"]
    return view.reshape(image.shape)


def flipped(image: Pixels, upside_down: bool, left_to_right: bool) -> Pixels:  # noqa: FBT001 - a pair
    """The image (H, W, C) mirrored along its height, its width, or both."""
    image = image[::-1] if upside_down else image
    return image[:, ::-1] if left_to_right else image


def crop_and_flip(
    images: Pixels, augmentation: AugmentationConfig, generator: np.random.Generator
) -> Pixels:
    """Small images (B, H, W, C) padded with black, cropped at a random place, randomly flipped.

    All at once: for images of 32 x 32 a library call each would take longer than the network.
    """
    count, height, width, _ = images.shape
    padding = augmentation.padding
    frame = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    padded = np.pad(images, frame) if padding else images
    tops, lefts = generator.integers(0, 2 * padding, (2, count), endpoint=True)
    upside_down = generator.random(count) < augmentation.vertical_flip
    left_to_right = generator.random(count) < augmentation.horizontal_flip
    views = np.empty_like(images)
    for index, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        crop = padded[index, top : top + height, left : left + width]
        views[index] = flipped(crop, upside_down[index], left_to_right[index])
    return views


def augment(transform: Any, image: Pixels, mask: Pixels, *, seed: int) -> tuple[Pixels, Pixels]:
    """The view of an image (H, W, C) and its mask (H, W) that belongs to a seed."""
    # Seeded per view, not per process: the stream is the same with any number of workers.
    transform.set_random_seed(seed)
    view = transform(image=image, mask=mask)
    return view["image"].reshape(image.shape), view["mask"]


def normalize(images: Pixels, *, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """From uint8 pixels (B, H, W, C) to what the encoder was trained on: (B, C, H, W) float32.

    `(pixel / 255 - mean) / std` per channel, in channels_last memory order. Rows of a table
    (B, 1, 1, C) are floats already, and stay what they are: their network standardises them.
    """
    batch, height, width, channels = images.shape
    if images.dtype == np.float32:
        return torch.from_numpy(images).permute(0, 3, 1, 2)
    # Rows of interleaved channels: several times faster than broadcasting over an axis of three.
    rows = torch.from_numpy(np.require(images, requirements=("C", "W"))).view(batch, height, -1)
    scale = torch.tensor([1 / (255 * s) for s in std]).repeat(width)  # (W * C,)
    offset = torch.tensor([m / s for m, s in zip(mean, std, strict=True)]).repeat(width)
    normalized = rows.float().mul_(scale).sub_(offset).view(batch, height, width, channels)
    return normalized.permute(0, 3, 1, 2)  # (B, C, H, W)
