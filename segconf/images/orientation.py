"""Orientation of volumes: from the axes of a file to slices as a radiologist sees them, and back.

Slices are axial, unless the voxels are at least twice as long along another axis than along both
others: then slices lie across that axis, in the plane in which they were acquired. A file with one
slice keeps its plane. In every slice the patient's right is at the left of the picture (anterior in
sagittal slices), and anterior or superior is up. Oblique volumes are not resampled: each axis takes
the name of the closest anatomical one.
"""

import math
from dataclasses import dataclass
from itertools import permutations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value", bound=np.generic)
Affine = NDArray[np.float64]
"""(4, 4), from voxel indices to millimetres, with x to the patient's right, y to the front and z to
the head (RAS+), as NIfTI has it."""
Shape = tuple[int, int, int]

_OPPOSITE = {"R": "L", "L": "R", "A": "P", "P": "A", "S": "I", "I": "S"}
_POSITIVE = "RAS"
# Where increasing slices, rows and columns lead: sagittal, coronal and axial slices.
_VIEWS = ("LIP", "PIL", "SPL")
_AXIAL = 2
_THICK = 2.0
_SAME_GRID = 0.5
_ROUNDED = 1e-3
"""Relative differences of lengths that may come from the rounding of a file."""


@dataclass(frozen=True, slots=True)
class Orientation:
    """How voxels (i, j, k) of a file become pixels (slice, row, column).

    Attributes:
        axes: the axes of the file that become slices, rows and columns.
        reversed: whether they run backwards.
        directions: where increasing slices, rows and columns lead, such as `SPL` (superior,
            posterior, left); empty where the file does not say how the patient lay.
    """

    axes: tuple[int, int, int] = (2, 1, 0)
    reversed: tuple[bool, bool, bool] = (False, False, False)
    directions: str = ""

    @classmethod
    def of(cls, affine: Affine, shape: Shape) -> "Orientation":
        """The orientation of a volume of that shape; unknown where the affine has no inverse."""
        matrix = np.asarray(affine, np.float64)[:3, :3]
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix) < len(matrix):
            return cls()
        steps = np.linalg.norm(matrix, axis=0)  # millimetres along each axis of the file
        left, _, right = np.linalg.svd(matrix / steps)
        closest = left @ right  # (anatomical axis, axis of the file): the nearest rotation
        names = max(permutations(range(3)), key=lambda order: _agreement(closest, order))
        stored = {name: axis for axis, name in enumerate(names)}
        across = names[_slice_axis(steps, shape, stored[_AXIAL])]
        anatomical = [_anatomical(letter) for letter in _VIEWS[across]]
        axes = tuple(stored[name] for name, _ in anatomical)
        backwards = tuple(bool(closest[name, stored[name]] * sign < 0) for name, sign in anatomical)
        return cls(_three(axes), _three(backwards), _VIEWS[across])

    @property
    def marks(self) -> tuple[str, str, str, str] | None:
        """Letters at the left, right, top and bottom of a slice; None where they are unknown."""
        if not self.directions:
            return None
        down, right = self.directions[1], self.directions[2]
        return _OPPOSITE[right], right, _OPPOSITE[down], down

    def shape(self, stored: Shape) -> Shape:
        """Slices, rows and columns of a file of that shape."""
        return _three(tuple(stored[axis] for axis in self.axes))

    def stored_index(self, slice_index: int, stored: Shape) -> tuple[slice, slice, slice]:
        """The part of a file that is one slice."""
        axis = self.axes[0]
        place = stored[axis] - 1 - slice_index if self.reversed[0] else slice_index
        part = [slice(None)] * 3
        part[axis] = slice(place, place + 1)
        return _three(tuple(part))

    def pixels(self, voxels: NDArray[Value]) -> NDArray[Value]:
        """Voxels (i, j, k, ...) as pixels (D, H, W, ...)."""
        rest = tuple(range(3, voxels.ndim))
        return voxels.transpose(*self.axes, *rest)[self._flips]

    def voxels(self, pixels: NDArray[Value]) -> NDArray[Value]:
        """The inverse of `pixels`."""
        places = tuple(self.axes.index(axis) for axis in range(3))
        rest = tuple(range(3, pixels.ndim))
        return pixels[self._flips].transpose(*places, *rest)

    @property
    def _flips(self) -> tuple[slice, ...]:
        return tuple(slice(None, None, -1 if flip else 1) for flip in self.reversed)

    def pixel_affine(self, affine: Affine, stored: Shape) -> Affine:
        """Affine from (column, row, slice), of the affine of a file of shape `stored`."""
        return affine @ self._index_map(stored)

    def voxel_affine(self, affine: Affine, pixels: Shape) -> Affine:
        """The inverse of `pixel_affine`, for pixels (D, H, W)."""
        places = [self.axes.index(axis) for axis in range(3)]
        forward = self._index_map(_three(tuple(pixels[place] for place in places)))
        back = np.eye(4)
        back[:3, :3] = forward[:3, :3].T
        back[:3, 3] = -forward[:3, :3].T @ forward[:3, 3]
        return affine @ back

    def _index_map(self, stored: Shape) -> Affine:
        """(4, 4) map from (column, row, slice) to indices in a file of that shape."""
        matrix = np.zeros((4, 4))
        matrix[3, 3] = 1
        for place, (axis, flip) in enumerate(zip(self.axes, self.reversed, strict=True)):
            matrix[axis, 2 - place] = -1 if flip else 1
            matrix[axis, 3] = stored[axis] - 1 if flip else 0
        return matrix


def same_grid(first: Affine, second: Affine, shape: Shape) -> bool:
    """Whether two affines put every corner of (D, H, W) pixels at most half a voxel apart."""
    slices, rows, columns = shape
    corners = np.array(
        [
            (column, row, section, 1)
            for column in (0, columns - 1)
            for row in (0, rows - 1)
            for section in (0, slices - 1)
        ]
    ).T  # (4, 8)
    apart = np.linalg.norm(((first - second) @ corners)[:3], axis=0)
    voxel = np.linalg.norm(first[:3, :3], axis=0).min()
    return bool(apart.max() <= _SAME_GRID * voxel)


def affine_of(
    affine: Affine, grid: tuple[int, int], *, slice_index: int | None, size: tuple[int, int] | None
) -> Affine:
    """(4, 4) affine of one slice, or of a resized grid, of a volume.

    Args:
        affine: of the pixels of the whole volume, from (column, row, slice).
        grid: height and width of its slices.
        slice_index: the slice that was taken, if one was.
        size: height and width after resizing, if it was resized.
    """
    if slice_index is not None:
        affine = affine @ _voxel_map(offset=(0, 0, slice_index))
    if size is not None:
        affine = affine @ _resize_map(grid, size)
    return affine


def spacing_of(affine: Affine, axes: int) -> tuple[float, ...] | None:
    """Distance between pixel centres along (H, W) or (D, H, W); None where one is no distance.

    That of slices is across them: it is less than the step between two where a series is tilted.
    """
    steps = np.linalg.norm(affine[:3, :3], axis=0)[:axes]  # columns, rows, slices
    if not (np.isfinite(steps) & (steps > 0)).all():
        return None
    column, row, *across = (float(step) for step in steps)
    if across:
        distance = abs(float(np.linalg.det(affine[:3, :3]))) / (row * column)
        if distance < (1 - _ROUNDED) * across[0]:
            across = [distance]
    return (*across, row, column) if all(across) else None


def _voxel_map(
    *, scale: tuple[float, ...] = (1, 1, 1), offset: tuple[float, ...] = (0, 0, 0)
) -> Affine:
    """(4, 4) map from new to old voxel indices (column, row, slice)."""
    matrix = np.diag([*scale, 1.0])
    matrix[:3, 3] = offset
    return matrix


def _resize_map(old: tuple[int, int], new: tuple[int, int]) -> Affine:
    """Voxel indices of a resized slice in the old one: outer edges stay where they are."""
    rows, columns = (before / after for before, after in zip(old, new, strict=True))
    return _voxel_map(scale=(columns, rows, 1), offset=((columns - 1) / 2, (rows - 1) / 2, 0))


def _agreement(closest: Affine, order: tuple[int, ...]) -> float:
    """How well the axes of a file agree with anatomical axes of that order."""
    return math.fsum(abs(closest[name, axis]) for axis, name in enumerate(order))


def _slice_axis(steps: NDArray[np.float64], shape: Shape, axial: int) -> int:
    """The axis of the file across which slices lie."""
    single = [axis for axis in (2, 1, 0) if shape[axis] == 1]
    if single:
        return single[0]
    order = np.argsort(steps)
    # Files round their numbers: one that is read as float32 must have the axis that it was given.
    if steps[order[-1]] >= _THICK * (1 - _ROUNDED) * steps[order[-2]]:
        return int(order[-1])
    return axial


def _anatomical(letter: str) -> tuple[int, int]:
    """Axis 0, 1, 2 (right, anterior, superior) of a letter, and its sign."""
    if letter in _POSITIVE:
        return _POSITIVE.index(letter), 1
    return _POSITIVE.index(_OPPOSITE[letter]), -1


Item = TypeVar("Item")


def _three(values: tuple[Item, ...]) -> tuple[Item, Item, Item]:
    first, second, third = values
    return first, second, third
