"""Masks and confidence maps to disk and back, on the grid of the image they belong to."""

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from segconf.conventions import FULL_SCALE
from segconf.errors import DataError
from segconf.images.nifti import open_volume
from segconf.images.orientation import turn_upright
from segconf.images.raster import decode, open_picture
from segconf.images.types import NIFTI_SUFFIXES, Image, image_suffix, reason, supported_suffix

_LARGEST_CLASS = 255
_PICTURE_AXES = 2
_WHITE_OF_MODE = {"L": 255, "I;16": FULL_SCALE, "I;16B": FULL_SCALE, "I": FULL_SCALE}

_NIFTI_1: Any = nibabel.Nifti1Image
_NIFTI_2: Any = nibabel.Nifti2Image


def write_mask(path: Path | str, mask: NDArray[Any], *, like: Image | None = None) -> None:
    """Write class indices (H, W) as 8-bit grey PNG, or (H, W) / (D, H, W) as NIfTI.

    Args:
        path: ends in .png, .nii or .nii.gz.
        mask: integers 0..255.
        like: image whose grid the mask has; its affine and header are written to NIfTI files.
    """
    path = Path(path)
    if mask.dtype != np.bool_ and not np.issubdtype(mask.dtype, np.integer):
        raise ValueError(f"a mask holds integers, not {mask.dtype}")
    if mask.size and not 0 <= mask.min() <= mask.max() <= _LARGEST_CLASS:
        raise ValueError(f"a mask holds 0..255, not {mask.min()}..{mask.max()}")
    _write(path, mask.astype(np.uint8), mask.astype(np.uint8), like)


def write_confidence(
    path: Path | str, confidence: NDArray[np.floating[Any]], *, like: Image | None = None
) -> None:
    """Write confidence 0..1 as 16-bit grey PNG (0..65535, rounded), or as float32 NIfTI.

    Args:
        path: ends in .png, .nii or .nii.gz.
        confidence: (H, W), or (D, H, W) for NIfTI.
        like: image whose grid the map has; its affine and header are written to NIfTI files.
    """
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("confidence must lie between 0 and 1")
    levels = np.rint(confidence.astype(np.float64) * FULL_SCALE).astype(np.uint16)
    _write(Path(path), levels, confidence.astype(np.float32), like)


def write_volume_channels(path: Path | str, values: NDArray[Any], *, like: Image) -> None:
    """Write channels (C, D, H, W) as NIfTI with four axes, channels last, on the grid of `like`."""
    header = like.header.copy()
    header.extensions.clear()
    header.set_intent("none")
    header["cal_min"] = header["cal_max"] = 0
    header.set_data_dtype(values.dtype)
    kind = _NIFTI_2 if isinstance(header, nibabel.Nifti2Header) else _NIFTI_1
    nibabel.save(kind(values.transpose(3, 2, 1, 0), like.affine, header), path)


def read_confidence(path: Path | str) -> NDArray[np.float32]:
    """Confidence 0..1 from a grey PNG (16-bit, or 8-bit: white = 1) or a NIfTI file.

    Returns:
        (H, W), or (D, H, W) for a NIfTI volume.

    Raises:
        DataError: the file cannot be read, is coloured, or its values leave 0..1.
    """
    path = Path(path)
    if supported_suffix(path) in NIFTI_SUFFIXES:
        with open_volume(path) as volume:
            values = volume.read(None)  # (C, D, H, W)
        if len(values) != 1 or not ((values >= 0) & (values <= 1)).all():
            raise DataError(
                f"{path}: {len(values)} channels between {values.min():g} and {values.max():g}. "
                "A confidence map has one channel between 0 and 1."
            )
        confidence = values[0].astype(np.float32)  # (D, H, W)
        return np.ascontiguousarray(confidence[0] if len(confidence) == 1 else confidence)
    with open_picture(path) as picture:
        white = _WHITE_OF_MODE.get(picture.decoder.mode)
        if white is None:
            raise DataError(
                f"{path}: {picture.decoder.mode} pixels. A confidence map is a grey PNG of 16 bits."
            )
        decode(picture.decoder)
        levels = turn_upright(np.asarray(picture.decoder), picture.orientation)
    return np.ascontiguousarray(levels / np.float64(white), np.float32)


def confidence_bits(path: Path | str) -> int:
    """Bits per pixel of a confidence picture; 0 for NIfTI, which holds floating point."""
    path = Path(path)
    if supported_suffix(path) in NIFTI_SUFFIXES:
        return 0
    with open_picture(path) as picture:
        return 8 if _WHITE_OF_MODE.get(picture.decoder.mode, 0) < FULL_SCALE else 16


def read_probability_volume(path: Path | str) -> NDArray[np.float32]:
    """Values of a NIfTI file, channels first: (C, H, W), or (C, D, H, W) for several slices."""
    with open_volume(Path(path)) as volume:
        values = volume.read(None).astype(np.float32)  # (C, D, H, W)
    return np.ascontiguousarray(values[:, 0] if values.shape[1] == 1 else values)


def _write(path: Path, levels: NDArray[Any], values: NDArray[Any], like: Image | None) -> None:
    """Write the integer levels as PNG or the values as NIfTI, whichever the suffix asks for."""
    if like is not None and values.shape != like.spatial_shape:
        raise ValueError(f"{path}: shape {values.shape}, its image has {like.spatial_shape}")
    suffix = image_suffix(path)
    try:
        if suffix in NIFTI_SUFFIXES:
            nibabel.save(_nifti(values, like), path)
        elif suffix == ".png" and levels.ndim == _PICTURE_AXES:
            PIL.Image.fromarray(levels).save(path)
        else:
            raise ValueError(f"{path}: {values.ndim} axes cannot be written as {suffix!r}")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or reason(error)}). "
            "Check that the folder exists, is writable and has space."
        ) from error


def _nifti(values: NDArray[Any], like: Image | None) -> Any:
    """Image on the grid of `like`; without its geometry, voxels of 1 mm at the origin."""
    voxels = values.T  # (columns, rows) or (columns, rows, slices)
    if like is None or like.affine is None:
        return _NIFTI_1(voxels, np.eye(4))
    header = like.header.copy()
    if voxels.ndim == _PICTURE_AXES < len(header.get_data_shape()):
        voxels = voxels[..., None]
    header.extensions.clear()  # may describe the patient, and does not describe this map
    header.set_intent("none")
    header["cal_min"] = header["cal_max"] = 0
    header.set_data_dtype(values.dtype)
    kind = _NIFTI_2 if isinstance(header, nibabel.Nifti2Header) else _NIFTI_1
    return kind(voxels, like.affine, header)
