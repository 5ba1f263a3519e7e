"""Features of images for out-of-distribution detection: spatial means of encoder maps.

An image is described by the mean of every channel of the encoder stages at an eighth and a
sixteenth of the grid. Earlier stages see little but colour; the deepest one is trained to ignore
what does not matter for the mask. The grid is that of the training, or 256 x 320 where the training
has less than 192 x 256 pixels: texture tells kinds of images apart, and a coarse grid has little.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from segconf.config.schema import ExperimentConfig
from segconf.data.cases import Case
from segconf.data.preprocessing import Preprocessing
from segconf.data.splits import Split
from segconf.data.transforms import normalize
from segconf.images.resizing import slices_on_grid
from segconf.images.types import ByteArray, Image
from segconf.models.encoders import encoder_normalization
from segconf.processes import ProcessGroup

STAGES = (3, 4)
"""Positions among the feature maps of an encoder; the input is number 0."""
ENOUGH_PIXELS = 192 * 256
FINE_GRID = (256, 320)
MOST_IMAGES = 512
"""Training images that are described; more of them hardly improve the detector."""


def feature_grid(size: tuple[int, int]) -> tuple[int, int]:
    """Grid on which images are described for a network with inputs of this size."""
    return size if math.prod(size) >= ENOUGH_PIXELS else FINE_GRID


def pooled_features(maps: Tensor | Sequence[Tensor]) -> Tensor:
    """Spatial means (B, F) of all channels of the feature maps (B, C, h, w) of an encoder.

    Where there are fewer stages than usual, the deepest is taken.
    """
    stages = [maps] if isinstance(maps, Tensor) else list(maps)
    chosen = stages[STAGES[0] : STAGES[-1] + 1] or stages[-1:]
    return torch.cat([stage.detach().float().mean(dim=(2, 3)) for stage in chosen], dim=1)


@dataclass(frozen=True)
class FeatureExtractor:
    """An encoder with the preprocessing of its input.

    Attributes:
        encoder: in evaluation mode.
        preprocessing: how files are read.
        mean: of the encoder's input, per channel.
        std: of the encoder's input, per channel.
        grid: height and width on which images are described.
    """

    encoder: nn.Module
    preprocessing: Preprocessing
    mean: tuple[float, ...]
    std: tuple[float, ...]
    grid: tuple[int, int]

    @classmethod
    def of(
        cls, network: nn.Module, config: ExperimentConfig, grid: tuple[int, int] | None = None
    ) -> "FeatureExtractor | None":
        """The extractor of a network in evaluation mode; None for one without an encoder."""
        encoder = getattr(network, "encoder", None)
        if encoder is None:
            return None
        mean, std = encoder_normalization(config.model.encoder, config.model.channels)
        grid = grid or feature_grid(config.data.size)
        return cls(encoder, Preprocessing.of(config), mean, std, grid)

    def pixels(self, image: Image) -> ByteArray:
        """Slices (D, h, w, C) of an image on the grid of the features."""
        return slices_on_grid(image.pixels, self.grid)

    @torch.no_grad()
    def features(self, pixels: ByteArray) -> Tensor:
        """(B, F) of images (B, h, w, C)."""
        device = next(self.encoder.parameters()).device
        inputs = normalize(pixels, mean=self.mean, std=self.std)
        return pooled_features(self.encoder(inputs.to(device))).cpu()


def describe_cases(
    extractor: FeatureExtractor,
    cases: Sequence[Case],
    group: ProcessGroup,
    on_image: Callable[[int, int], None] | None = None,
) -> Tensor | None:
    """Features (N, F) of cases; None where there are none.

    The files are read as `predict` reads them: the cache of the training decodes JPEGs at a reduced
    size, and has a coarser grid than the one on which images are described.

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
    for path, slices in _read_ahead(list(files), partial(_slices, extractor)):
        for row in files[path]:
            index = cases[row].slice_index or 0
            found[row] = extractor.features(slices[index : index + 1])[0]
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


def _slices(extractor: FeatureExtractor, path: Path) -> ByteArray:
    return extractor.pixels(extractor.preprocessing.read(path))


def _read_ahead(
    paths: Sequence[Path], read: Callable[[Path], ByteArray]
) -> Iterator[tuple[Path, ByteArray]]:
    """Files with their content, in order; the next one is read while this one is described."""
    with ThreadPoolExecutor(1) as pool:
        reading = [pool.submit(read, path) for path in paths[:1]]
        for number, path in enumerate(paths, 1):
            content = reading.pop().result()
            reading = [pool.submit(read, following) for following in paths[number : number + 1]]
            yield path, content
