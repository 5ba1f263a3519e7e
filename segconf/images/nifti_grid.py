"""NIfTI files on the voxel grid of an image: its axes, affine, form codes and units."""

from typing import Any

import nibabel
import numpy as np
from numpy.typing import NDArray

from segconf.images.orientation import Orientation
from segconf.images.types import Image

_VOLUME_AXES = 3
# Pictures lie in NIfTI files as ITK and 3D Slicer place them: upright in an axial slice.
_PICTURE_AFFINE = np.diag([-1.0, -1.0, 1.0, 1.0])
_MILLIMETRES = {"meter": 1000.0, "micron": 0.001}

_NIFTI_1: Any = nibabel.Nifti1Image
_NIFTI_2: Any = nibabel.Nifti2Image


def millimetres_per_unit(header: Any) -> float:
    """Millimetres of the unit of the affine; a file without a unit has millimetres."""
    return _MILLIMETRES.get(header.get_xyzt_units()[0], 1.0)


def on_grid(values: NDArray[Any], like: Image | None) -> Any:
    """File of (H, W) or (D, H, W) on the grid of `like`.

    Without the geometry of an image, voxels have 1 mm and lie as `_PICTURE_AFFINE` says.
    """
    pixels = values if values.ndim == _VOLUME_AXES else values[None]  # (D, H, W)
    orientation, affine = Orientation(), _PICTURE_AFFINE
    if like is not None and like.affine is not None:
        orientation = like.orientation or Orientation()
        affine = orientation.voxel_affine(like.affine, _three_axes(pixels))
    voxels = orientation.voxels(pixels)
    if like is None or not isinstance(like.header, nibabel.Nifti1Header):
        return _NIFTI_1(voxels, affine)
    header: Any = like.header.copy()  # type: ignore[no-untyped-call]
    if len(header.get_data_shape()) < _VOLUME_AXES:
        voxels = voxels[..., 0]
    header.extensions.clear()  # may describe the patient, and does not describe this map
    header.set_intent("none")
    header["cal_min"] = header["cal_max"] = 0
    header.set_data_dtype(values.dtype)
    kind = _NIFTI_2 if isinstance(header, nibabel.Nifti2Header) else _NIFTI_1
    if not np.isfinite(affine).all():
        return kind(voxels, None, header)
    # nibabel keeps the forms of the header, bit for bit, where they agree with the affine.
    return kind(voxels, np.diag([*[1 / millimetres_per_unit(header)] * 3, 1.0]) @ affine, header)


def _three_axes(pixels: NDArray[Any]) -> tuple[int, int, int]:
    slices, rows, columns = pixels.shape[:_VOLUME_AXES]
    return slices, rows, columns
