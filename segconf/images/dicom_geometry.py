"""Where the slices of a DICOM series lie: their order, and one affine for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.orientation import Affine

_ANGLE = 1e-3
_UNEVEN = 0.1
_NO_COSINE = 0.1
_SAME_PLACE = 1e-3
_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""From the axes of DICOM (left, posterior, superior) to those of NIfTI."""


@dataclass(frozen=True, slots=True)
class Plane:
    """Place of a slice in the patient, in the axes of DICOM.

    Attributes:
        position: (3,) of the centre of the first pixel, in mm.
        row: (3,) direction in which columns are counted.
        column: (3,) direction in which rows are counted.
        spacing: mm between rows, and between columns.
    """

    position: NDArray[np.float64]
    row: NDArray[np.float64]
    column: NDArray[np.float64]
    spacing: tuple[float, float]

    @classmethod
    def of(cls, position: Any, orientation: Any, spacing: Any, shown: object) -> "Plane":
        """From ImagePositionPatient, ImageOrientationPatient and PixelSpacing.

        Raises:
            DataError: one of them is missing or no number.
        """
        try:
            place = np.array([float(value) for value in position], np.float64).reshape(3)
            cosines = np.array([float(value) for value in orientation], np.float64).reshape(2, 3)
            rows, columns = (float(value) for value in spacing)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{shown}: a slice does not say where it lies (position, orientation or spacing "
                "is missing). Export the series again."
            ) from error
        whole = np.array([*place, *cosines.flat, rows, columns])
        lengths = np.linalg.norm(cosines, axis=1)
        if (
            not np.isfinite(whole).all()
            or min(rows, columns) <= 0
            or abs(lengths - 1).max() > _NO_COSINE
        ):
            raise DataError(
                f"{shown}: position, orientation or spacing of a slice is not possible. Export "
                "the series again."
            )
        return cls(place, cosines[0], cosines[1], (rows, columns))

    @property
    def normal(self) -> NDArray[np.float64]:
        """(3,) direction across the slice."""
        across: NDArray[np.float64] = np.cross(self.row, self.column)
        return across


def order_slices(planes: Sequence[Plane], shown: object) -> tuple[list[int], Affine]:
    """Slices in the order of their places, and the RAS affine from (column, row, slice).

    Raises:
        DataError: orientations are mixed, places occur twice, slices are missing, or they do not
            lie on a line.
    """
    first = planes[0]
    for plane in planes:
        gap = max(np.abs(plane.row - first.row).max(), np.abs(plane.column - first.column).max())
        if gap > _ANGLE:
            raise DataError(
                f"{shown}: slices of several orientations, which are no volume. Give each "
                "orientation as a series of its own."
            )
        if not np.allclose(plane.spacing, first.spacing, rtol=_ANGLE):
            raise DataError(f"{shown}: slices of several pixel spacings. Give each on its own.")
    along = np.array([plane.position @ first.normal for plane in planes])
    order = [int(number) for number in np.argsort(along, kind="stable")]
    step = _step([planes[number] for number in order], along[order], shown)
    start = planes[order[0]].position
    affine = np.eye(4)
    affine[:3, 0] = first.row * first.spacing[1]
    affine[:3, 1] = first.column * first.spacing[0]
    affine[:3, 2] = first.normal if step is None else step
    affine[:3, 3] = start
    return order, _RAS @ affine


def _step(
    planes: Sequence[Plane], along: NDArray[np.float64], shown: object
) -> NDArray[np.float64] | None:
    """(3,) from one slice to the next; None for a single one."""
    if len(planes) == 1:
        return None
    gaps = np.diff(along)
    usual = float(np.median(gaps))
    if (gaps < max(_SAME_PLACE, _UNEVEN * usual)).any():
        count = int((gaps < max(_SAME_PLACE, _UNEVEN * usual)).sum())
        raise DataError(
            f"{shown}: {count + 1} slices lie at the same place, so that it is not one volume. "
            "Give each acquisition as a series of its own."
        )
    if (gaps > (1 + _UNEVEN) * usual).any() or (gaps < (1 - _UNEVEN) * usual).any():
        raise DataError(
            f"{shown}: slices are missing or unevenly spaced ({gaps.min():.3g} to {gaps.max():.3g} "
            "mm apart). Copy the whole series again."
        )
    step = (planes[-1].position - planes[0].position) / (len(planes) - 1)
    expected = planes[0].position + np.arange(len(planes))[:, None] * step
    off = np.abs(np.array([plane.position for plane in planes]) - expected).max()
    if off > _UNEVEN * max(usual, *planes[0].spacing):
        raise DataError(
            f"{shown}: slices do not lie on a line (up to {off:.3g} mm beside it). Give a series "
            "whose slices do."
        )
    return np.asarray(step, np.float64)
