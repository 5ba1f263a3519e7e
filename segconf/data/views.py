"""Random views of training images: augmented ones to learn from, others for the history.

What is drawn for a step depends on the seed, the epoch and the step alone: steps can be made in any
process, in any order, and an interrupted run continues with the same views.
"""

from typing import Any

import numpy as np

from segconf.config.schema import AugmentationConfig
from segconf.data.transforms import (
    Pixels,
    augment,
    colour_transform,
    crop_and_flip,
    flipped,
    recoloured,
    training_transform,
)

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
Flips = np.ndarray[tuple[int, int], np.dtype[np.bool_]]
VIEW = 1_000_000
"""Keeps the random numbers of the views for the history apart from those of augmented views."""
LABEL = (1, 1)
"""Height and width of a label, which is a mask of one pixel."""


class Views:
    """Views of the images of a grid, by epoch and step."""

    def __init__(
        self,
        size: tuple[int, int],
        augmentation: AugmentationConfig,
        *,
        mask_size: tuple[int, int],
        seed: int,
    ) -> None:
        """Prepare the transforms; nothing is drawn yet.

        Args:
            size: height and width of the images.
            augmentation: how views may differ from them.
            mask_size: height and width of what is learned: that of the images, or one pixel.
            seed: decides the views.
        """
        self._settings = augmentation
        self._seed = seed
        self._flips_history = augmentation.history_views == "flipped"
        self._has_labels = mask_size == LABEL
        simple = augmentation.scale == (1, 1) and not augmentation.rotation
        self._at_once = self._has_labels and simple and not augmentation.color_jitter
        self._is_table = size == LABEL
        self._transform: Any = None
        if not self._at_once and not self._is_table:
            self._transform = training_transform(size, augmentation)
        self._colours: Any = None
        if self._flips_history and augmentation.color_jitter and not self._is_table:
            self._colours = colour_transform(augmentation)

    def augmented(
        self, images: Pixels, masks: Pixels, *, epoch: int, step: int
    ) -> tuple[Pixels, Pixels]:
        """Views (B, H, W, C) to learn from and their masks; the label of an image is the same."""
        if self._is_table:
            return images, masks
        if self._at_once:
            generator = np.random.default_rng([self._seed, epoch, step])
            return crop_and_flip(images, self._settings, generator), masks
        seeds = [self._view_seed(epoch, step, position) for position in range(len(images))]
        # A label has no place in the picture: its view is that of the image alone.
        own = images[..., 0] if self._has_labels else masks
        views = [
            augment(self._transform, image, mask, seed=seed)
            for image, mask, seed in zip(images, own, seeds, strict=True)
        ]
        pictures = np.stack([image for image, _ in views])
        return pictures, masks if self._has_labels else np.stack([mask for _, mask in views])

    def recorded(
        self, images: Pixels, rows: Rows, *, epoch: int, step: int
    ) -> tuple[Pixels, Flips | None]:
        """Views (B, H, W, C) for the history: as they are, or flipped with other colours.

        Args:
            images: unaugmented.
            rows: of the images, which decide their views.
            epoch: number of the epoch.
            step: number of the step.

        Returns:
            The views, and (B, 2) whether they are upside down, and left to right; None if none is.
        """
        if not self._flips_history or self._is_table:
            return images, None
        seeds = [self._view_seed(epoch, step, VIEW + int(row)) for row in rows]
        flips = np.array([[seed & 1, seed >> 1 & 1] for seed in seeds], dtype=bool)  # (B, 2)
        views = [flipped(image, *flip) for image, flip in zip(images, flips, strict=True)]
        if self._colours is not None:
            views = [
                recoloured(self._colours, view, seed=seed)
                for view, seed in zip(views, seeds, strict=True)
            ]
        return np.stack(views), flips

    def _view_seed(self, epoch: int, step: int, position: int) -> int:
        words = np.random.SeedSequence([self._seed, epoch, step, position])
        return int(words.generate_state(1)[0])
