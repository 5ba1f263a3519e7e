"""The interface of an image format, and how a file name finds its format."""

from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from segconf.errors import ConfigError, DataError
from segconf.images.types import Header, Image, ReadOptions
from segconf.registry import FORMATS, Registry

MapFormat = Literal["png", "nifti"]
MAP_SUFFIXES: dict[MapFormat, str] = {"png": ".png", "nifti": ".nii.gz"}

_MAP_FORMATS = "A confidence map is a grey PNG of 16 bits or a NIfTI file."


class ImageFormat(ABC):
    """Files of one kind: how images, masks and maps are read from them and written to them.

    Every format reads images and masks. A format in which maps are written (the `map_suffix` of
    itself or of another format) also reads and writes confidence maps. Whatever is wrong with a
    file is a `DataError` that names the file and the way out.
    """

    name: ClassVar[str]
    suffixes: ClassVar[frozenset[str]]
    """Lower-case endings of file names, each with its dot; no other format has them."""
    map_suffix: ClassVar[str]
    """Ending of the mask and the confidence map that are written for an image of this format."""
    has_slices: ClassVar[bool] = False
    """Whether a file can hold a volume of several slices."""
    stores_probabilities: ClassVar[bool] = False
    """Whether a file can hold the probabilities of all classes."""

    def files(self, path: Path) -> tuple[Path, ...]:
        """Files that the image is read from: for most formats the path itself."""
        return (path,)

    @abstractmethod
    def read_header(self, path: Path) -> Header:
        """Size, slices and channels, without decoding pixels."""

    @abstractmethod
    def read_image(self, path: Path, options: ReadOptions) -> Image:
        """8-bit pixels (C, H, W), or (C, D, H, W) for a volume read whole, with their geometry."""

    @abstractmethod
    def read_labels(self, path: Path, slice_index: int | None) -> NDArray[Any]:
        """Values of a mask as they are stored, (H, W) or (D, H, W)."""

    def remarks(self, path: Path, channels: int) -> tuple[str, ...]:  # noqa: ARG002 - to override
        """What was lost or added when the file was read with that many channels."""
        return ()

    def read_confidence(self, path: Path) -> NDArray[np.float32]:
        """Confidence 0..1, (H, W) or (D, H, W)."""
        raise DataError(f"{path}: {self.name} files hold no confidence maps. {_MAP_FORMATS}")

    def confidence_bits(self, path: Path) -> int:
        """Bits per pixel of a confidence map; 0 for floating point."""
        raise DataError(f"{path}: {self.name} files hold no confidence maps. {_MAP_FORMATS}")

    def read_probabilities(self, path: Path) -> NDArray[np.float32]:
        """Values with the classes first: (K, H, W), or (K, D, H, W) for several slices."""
        raise DataError(f"{path}: {self.name} files hold no probabilities. Save them as NIfTI.")

    def write_labels(self, path: Path, labels: NDArray[np.uint8], like: Image | None) -> None:  # noqa: ARG002
        """Write labels (H, W) or (D, H, W) on the grid of an image."""
        raise ValueError(f"{path}: masks are not written as {self.name}")

    def write_confidence(self, path: Path, confidence: NDArray[Any], like: Image | None) -> None:  # noqa: ARG002
        """Write confidence, floats 0..1 or uint16 levels 0..65535, on the grid of an image."""
        raise ValueError(f"{path}: confidence is not written as {self.name}")


formats: Registry[ImageFormat] = FORMATS
register = formats.register


def image_suffixes() -> frozenset[str]:
    """Suffixes of all formats, those of other packages among them."""
    return frozenset(_by_suffix(formats.implementations()))


def listed_suffixes() -> str:
    """Suffixes of all formats for a message."""
    return ", ".join(sorted(image_suffixes()))


def image_suffix(path: Path | str) -> str:
    """Lower-case suffix if the format is supported (``.nii.gz`` as a whole), else ``""``."""
    # A path is not parsed again: this is asked several times for each of a hundred thousand files.
    name = (path if isinstance(path, Path) else Path(path)).name.lower()
    for suffix in _by_suffix(formats.implementations()):
        if name.endswith(suffix) and name != suffix:
            return suffix
    return ""


def format_of(path: Path | str) -> ImageFormat:
    """The format of a file by its suffix.

    Raises:
        DataError: no format has this suffix.
    """
    suffix = image_suffix(path)
    if not suffix:
        raise DataError(f"{path}: unknown image format. Convert it to one of {listed_suffixes()}.")
    return _by_suffix(formats.implementations())[suffix]


def map_file(folder: Path, case: str, image: Path | str) -> Path:
    """The mask or map of a case in a folder of them.

    It has the format of maps of its image, or is NIfTI where that was asked for.
    """
    own = folder / f"{case}{format_of(image).map_suffix}"
    chosen = folder / f"{case}{MAP_SUFFIXES['nifti']}"
    return chosen if chosen.exists() and not own.exists() else own


def case_name(path: Path | str) -> str:
    """File name without its suffix; ``.nii.gz`` is one suffix."""
    suffix = image_suffix(path)
    return Path(path).name[: -len(suffix)] if suffix else Path(path).stem


@lru_cache(maxsize=1)
def _by_suffix(implementations: tuple[ImageFormat, ...]) -> dict[str, ImageFormat]:
    """Formats by suffix, the longest first, so that `.nii.gz` comes before `.gz`.

    Raises:
        ConfigError: two formats have the same suffix.
    """
    found: dict[str, ImageFormat] = {}
    for image_format in implementations:
        for suffix in image_format.suffixes:
            other = found.setdefault(suffix, image_format)
            if type(other) is not type(image_format):
                raise ConfigError(
                    f"image formats {other.name} and {image_format.name}: both have the suffix "
                    f"{suffix}. Remove the package that provides one of them."
                )
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))
