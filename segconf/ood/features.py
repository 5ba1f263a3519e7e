"""Descriptions of images for out-of-distribution detection: moments of encoder maps.

An image is described by the means and products of the channels of the encoder stages at a half, a
quarter and an eighth of the grid; `energies` makes features of them. Later stages are left out:
they are trained to ignore what does not matter for the mask.

How a file was resampled and compressed must not count. Every image is first reduced to a *band*, a
grid no finer than the coarsest training images, which removes what a coarser file cannot have, and
is described on a grid of moderate size from there. Besides, training and validation images are
described twice: as they are, and as another archive would have kept them (`Recompression`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from segconf.config.ranges import Task
from segconf.config.schema import ExperimentConfig
from segconf.data.cases import Case
from segconf.data.preprocessing import Preprocessing
from segconf.data.splits import Split
from segconf.data.transforms import normalize
from segconf.images.io import read_header
from segconf.images.recompression import Recompression
from segconf.images.resizing import reduced_slices
from segconf.images.types import ByteArray, Image, Size
from segconf.models.encoders import encoder_normalization
from segconf.processes import ProcessGroup

STAGES = (1, 2, 3)
"""Positions among the feature maps of an encoder; the input is number 0."""
MOST_CHANNELS = 64
"""Of a stage; of more of them, so many are taken, evenly spread."""
FEWEST_PIXELS, MOST_PIXELS = 96 * 128, 192 * 256
"""Of the grid: a coarse one shows no texture, a fine one how a file was resampled."""
USUAL_GRID = (128, 160)
MOST_IMAGES = 512
"""Training images that are described; more of them hardly improve the detector."""
_COARSE = 0.05
_SEED = 0


def feature_grid(size: Size, task: Task) -> Size:
    """Grid on which images are described: that of the network, where it is of moderate size.

    A classifier always has its own: others take no other one, or many times longer.
    """
    if task == "classification":
        return size
    return size if FEWEST_PIXELS <= math.prod(size) <= MOST_PIXELS else USUAL_GRID


def band_of(cases: Sequence[Case], grid: Size) -> Size:
    """The grid, or the resolution of the coarsest images where that is less.

    The coarsest 5% of the heights and of the widths are left out: a few thumbnails among the
    training images must not blind the detector.
    """
    if not cases or cases[0].record is not None:  # all records of a file have the same size
        return grid
    paths = {case.image_path for case in cases}
    sizes = np.array([read_header(path).size for path in sorted(paths)])  # (N, 2)
    coarse = np.quantile(sizes, _COARSE, axis=0, method="higher")
    return min(grid[0], int(coarse[0])), min(grid[1], int(coarse[1]))


def chosen_stages(maps: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """The stages that are described; where there are fewer than usual, the deepest."""
    stages = [maps] if isinstance(maps, Tensor) else list(maps)
    chosen = stages[STAGES[0] : STAGES[-1] + 1] or stages[-1:]
    return [stage[:, :: -(-stage.shape[1] // MOST_CHANNELS)] for stage in chosen]


def pooled_features(maps: Tensor | Sequence[Tensor]) -> Tensor:
    """Descriptions (B, F) of images by the feature maps (B, C, h, w) of an encoder.

    For each stage the mean (C), the covariance of its pixels (C x C), and the mean products of the
    differences between neighbours in a column and in a row, added up (C x C).
    """
    parts: list[Tensor] = []
    for stage in chosen_stages(maps):
        # Directions of little variance are differences of large products: float32 is too coarse.
        exact = torch.float32 if stage.device.type == "mps" else torch.float64
        values = stage.detach().to(exact)
        mean = values.mean(dim=(2, 3))  # (B, C)
        centred = (values - mean[:, :, None, None]).flatten(2)
        down, across = values[:, :, 1:] - values[:, :, :-1], values[..., 1:] - values[..., :-1]
        difference = _products(down.flatten(2)) + _products(across.flatten(2))
        parts += [mean, _products(centred).flatten(1), difference.flatten(1)]
    return torch.cat(parts, dim=1)


def _products(values: Tensor) -> Tensor:
    """Mean products (B, C, C) of the channels over pixels (B, C, P); 0 without any."""
    # In float32 the sum of thousands of pixels depends on their order in the fourth digit, and the
    # logarithm of a small energy on much less.
    exact = values.double()
    return (exact @ exact.transpose(1, 2) / max(1, values.shape[2])).float()


@dataclass(frozen=True)
class FeatureExtractor:
    """An encoder with the preprocessing of its input.

    Attributes:
        encoder: in evaluation mode.
        preprocessing: how files are read.
        mean: of the encoder's input, per channel.
        std: of the encoder's input, per channel.
        grid: height and width on which images are described.
        band: they are reduced to these first.
    """

    encoder: nn.Module
    preprocessing: Preprocessing
    mean: tuple[float, ...]
    std: tuple[float, ...]
    grid: Size
    band: Size

    @classmethod
    def of(
        cls, network: nn.Module, config: ExperimentConfig, grid: Size, band: Size
    ) -> "FeatureExtractor | None":
        """The extractor of a network in evaluation mode; None for one without an encoder."""
        encoder = getattr(network, "encoder", None)
        if encoder is None:
            return None
        mean, std = encoder_normalization(config.model.encoder, config.model.channels)
        return cls(encoder, Preprocessing.of(config), mean, std, grid, band)

    def pixels(self, pixels: ByteArray) -> ByteArray:
        """A picture (C, H, W) or volume (C, D, H, W) as slices (D, h, w, C) on the grid."""
        return reduced_slices(pixels, self.band, self.grid)

    def views(self, image: Image, slice_index: int, generator: np.random.Generator) -> ByteArray:
        """A slice as it is and as another archive would have kept it, (2, h, w, C)."""
        pixels = image.pixels.reshape(len(image.pixels), -1, *image.spatial_shape[-2:])
        own = pixels[:, slice_index]  # (C, H, W)
        height, width = own.shape[1:]
        kept = Recompression.draw((height, width), self.band, generator).apply(own)
        return np.concatenate([self.pixels(own), self.pixels(kept)])

    def features(self, pixels: ByteArray) -> Tensor:
        """Descriptions (B, F) of images (B, h, w, C)."""
        with torch.no_grad():
            return pooled_features(self._maps(pixels)).cpu()

    def channels(self) -> tuple[int, ...]:
        """Channels of the stages that are described."""
        blank = np.zeros((1, *self.grid, len(self.mean)), np.uint8)
        with torch.no_grad():
            return tuple(stage.shape[1] for stage in chosen_stages(self._maps(blank)))

    def _maps(self, pixels: ByteArray) -> Tensor | Sequence[Tensor]:
        device = next(self.encoder.parameters()).device
        inputs = normalize(pixels, mean=self.mean, std=self.std)
        maps: Tensor | Sequence[Tensor] = self.encoder(inputs.to(device))
        return maps


def describe_cases(
    extractor: FeatureExtractor,
    cases: Sequence[Case],
    group: ProcessGroup,
    on_image: Callable[[int, int], None] | None = None,
) -> Tensor | None:
    """Descriptions (N, 2, F) of cases, as they are and recompressed; None where there are none.

    The files are read as `predict` reads them.

    Args:
        extractor: the same on every process.
        cases: of all processes; each one describes its part.
        group: the processes that share the images.
        on_image: called on the first process with how many images of it are done, of how many.
    """
    files: dict[Path, list[int]] = {}
    rows = range(len(cases))[group.own(len(cases))]
    for row in rows:
        files.setdefault(cases[row].image_path, []).append(row)
    found: dict[int, Tensor] = {}
    for path, image in _read_ahead(list(files), extractor.preprocessing.read):
        for row in files[path]:
            # Seeded by the case: the same with any number of processes.
            generator = np.random.default_rng((_SEED, row))
            index = cases[row].record or cases[row].slice_index or 0
            found[row] = extractor.features(extractor.views(image, index, generator))
        if on_image is not None and group.is_first:
            on_image(len(found), len(rows))
    every = {number: row for part in group.collect(found) for number, row in part.items()}
    return torch.stack([every[number] for number in sorted(every)]) if every else None


def described_cases(split: Split) -> dict[str, Sequence[Case]]:
    """What the detector of a run is fitted on: some training images and all validation images."""
    training = sorted((*split.labeled, *split.unlabeled), key=lambda case: case.id)
    return {
        "features of training images": spread(training, MOST_IMAGES),
        "features of validation images": split.validation,
    }


def spread(cases: Sequence[Case], most: int) -> Sequence[Case]:
    """At most that many cases, evenly spread over all of them."""
    count = min(most, len(cases))
    return [cases[number * len(cases) // count] for number in range(count)]


def _read_ahead(
    paths: Sequence[Path], read: Callable[[Path], Image]
) -> Iterator[tuple[Path, Image]]:
    """Files with their content, in order; the next one is read while this one is described."""
    with ThreadPoolExecutor(1) as pool:
        reading = [pool.submit(read, path) for path in paths[:1]]
        for number, path in enumerate(paths, 1):
            content = reading.pop().result()
            reading = [pool.submit(read, following) for following in paths[number : number + 1]]
            yield path, content
