"""DICOM volumes, read with pydicom: series of slices, and enhanced objects of several frames.

Slices are ordered by their places, whatever their files are called, and brought to the orientation
that `segconf.images.orientation` describes. Results are NIfTI files on the grid of the series.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.images.dicom_files import VOLUME_SUFFIX, files_of
from segconf.images.dicom_stack import open_stack
from segconf.images.image_format import ImageFormat, register
from segconf.images.orientation import affine_of, spacing_of
from segconf.images.resizing import resize_pixels
from segconf.images.types import Header, Image, ReadOptions, check_ceiling
from segconf.images.volumes import to_bytes, with_channels


@register
class DicomSeries(ImageFormat):
    """A volume of several files, or of several frames of a file; see `dicom_files` for its path."""

    name = "dicom_series"
    suffixes = frozenset({VOLUME_SUFFIX})
    map_suffix = ".nii.gz"
    has_slices = True

    def files(self, path: Path) -> tuple[Path, ...]:
        """Files that the path stands for."""
        return files_of(path)

    def read_header(self, path: Path) -> Header:
        """Size, slices and place, without decoding pixels."""
        stack = open_stack(path)
        slices, height, width = stack.shape
        return Header((height, width), slices, 1, stack.affine, stack.orientation)

    def read_image(self, path: Path, options: ReadOptions) -> Image:
        """Intensities of the window as 0..255, (C, D, H, W), or (C, H, W) for one slice."""
        stack = open_stack(path)
        slices, *sides = stack.shape
        grid = sides[0], sides[1]
        check_ceiling(path, grid, slices, options.max_pixels)
        values = stack.read(options.slice_index)  # (1, D, H, W)
        pixels = to_bytes(values, [options.window or stack.window()])
        if stack.inverted:
            pixels = 255 - pixels
        pixels = with_channels(path, pixels, options.channels, is_colour=False)
        affine = affine_of(stack.affine, grid, slice_index=options.slice_index, size=options.size)
        if options.size is not None:
            pixels = resize_pixels(pixels, options.size)
        if pixels.shape[1] == 1:
            pixels = pixels[:, 0]  # (C, H, W)
        return Image(
            pixels=np.ascontiguousarray(pixels),
            path=path,
            affine=affine,
            spacing=spacing_of(affine, pixels.ndim - 1),
            orientation=stack.orientation,
        )

    def read_labels(self, path: Path, slice_index: int | None) -> NDArray[Any]:
        """Stored values of a series that another program wrote as a mask."""
        labels: NDArray[Any] = open_stack(path).read(slice_index)[0]
        return labels[0] if len(labels) == 1 else labels
