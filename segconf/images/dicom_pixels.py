"""Pixels of DICOM files: decoding, colour, modality units and windows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.dicom_files import INSTALL, MASK_CLASSES
from segconf.images.types import Window

COLOUR_CHANNELS = 3
_GREY = ("MONOCHROME1", "MONOCHROME2")
_PALETTE = "PALETTE COLOR"
_EIGHT = 8


def check_image(dataset: Any, shown: object) -> None:
    """Refuse a file without pixels that a network can see.

    Raises:
        DataError: naming what the file is instead.
    """
    kind = str(dataset.get("SOPClassUID", ""))
    if kind in MASK_CLASSES:
        raise DataError(f"{shown}: is a DICOM segmentation, not an image. Give its source images.")
    if "PixelData" not in dataset:
        if "EncryptedAttributesSequence" in dataset:
            raise DataError(f"{shown}: its content is encrypted. Decrypt it, and give that file.")
        if "FloatPixelData" in dataset or "DoubleFloatPixelData" in dataset:
            raise DataError(f"{shown}: is a parametric map, not an image. Give its source images.")
        modality = str(dataset.get("Modality", "") or "unknown")
        raise DataError(
            f"{shown}: holds no pixels (modality {modality}). Give an image, or remove it."
        )
    syntax = dataset.file_meta.get("TransferSyntaxUID")
    if syntax is None:
        raise DataError(f"{shown}: does not name its transfer syntax. Export it again.")
    for name in ("Rows", "Columns", "PhotometricInterpretation", "BitsAllocated", "BitsStored"):
        if dataset.get(name) in (None, ""):
            raise DataError(f"{shown}: {name} is missing. Export the image again, or remove it.")


def decoded(dataset: Any, shown: object, *, index: int | None = None) -> NDArray[Any]:
    """Stored values (H, W), (N, H, W) or (H, W, 3) in RGB; the frame `index` where it is given.

    Raises:
        DataError: the transfer syntax is unknown, or needs a plug-in that is not installed.
    """
    from pydicom.pixels.decoders.base import get_decoder
    from pydicom.pixels.utils import pixel_array

    syntax = dataset.file_meta.TransferSyntaxUID
    try:
        decoder = get_decoder(syntax)
    except (NotImplementedError, KeyError, ValueError) as error:
        raise DataError(
            f"{shown}: unknown transfer syntax {syntax.name}. Convert it to an uncompressed one, "
            "for example with: dcmdjpeg, or gdcmconv --raw."
        ) from error
    if not decoder.is_available:
        raise DataError(
            f"{shown}: {syntax.name} needs a plug-in that is not installed. Install it: {INSTALL}"
        )
    values: NDArray[Any] = pixel_array(dataset, index=index)
    return values


def is_colour(dataset: Any) -> bool:
    """Whether pixels are colours; a palette counts as colour."""
    return int(dataset.get("SamplesPerPixel", 1) or 1) == COLOUR_CHANNELS or (
        dataset.get("PhotometricInterpretation") == _PALETTE
    )


def colours(dataset: Any, shown: object) -> NDArray[np.uint8]:
    """Pixels (H, W, 3) of a colour file, 8 bits each."""
    values = decoded(dataset, shown)
    bits = int(dataset.BitsStored)
    if dataset.PhotometricInterpretation == _PALETTE:
        from pydicom.pixels.processing import apply_color_lut

        values = apply_color_lut(values, dataset)[..., :COLOUR_CHANNELS]
        bits = 8 * values.dtype.itemsize
    if values.ndim != COLOUR_CHANNELS or values.shape[-1] != COLOUR_CHANNELS:
        raise DataError(f"{shown}: pixels of shape {values.shape} are not one colour picture.")
    if bits > _EIGHT:
        full = 2**bits - 1
        values = np.rint(values.astype(np.float64) * (255 / full))
    return values.astype(np.uint8)


def intensities(dataset: Any, values: NDArray[Any], group: Any = None) -> NDArray[np.float64]:
    """Stored grey values in the units of the modality, such as Hounsfield units.

    Args:
        dataset: the file.
        values: as stored.
        group: functional groups of a frame that hold the rescale of enhanced objects.
    """
    from pydicom.pixels.processing import apply_modality_lut

    if group is not None:
        slope, intercept = (float(group.get(name, 0) or 0) for name in _RESCALE)
        return values * np.float64(slope) + intercept
    return np.asarray(apply_modality_lut(values, dataset), np.float64)


_RESCALE = ("RescaleSlope", "RescaleIntercept")


def changes_values(dataset: Any) -> bool:
    """Whether the units of the modality are others than the stored values."""
    if "ModalityLUTSequence" in dataset:
        return True
    slope, intercept = (dataset.get(name) for name in _RESCALE)
    return (1 if slope is None else float(slope), float(intercept or 0)) != (1, 0)


def check_grey(dataset: Any, shown: object) -> None:
    """Refuse grey pixels whose meaning is not known.

    Raises:
        DataError: naming the photometric interpretation.
    """
    meaning = str(dataset.PhotometricInterpretation)
    if meaning not in _GREY:
        raise DataError(
            f"{shown}: photometric interpretation {meaning} is not supported. "
            "Export the image as MONOCHROME2 or RGB."
        )


def header_window(dataset: Any, shown: object) -> Window | None:
    """Intensities that the header makes black and white; None where it does not say.

    Of several windows it is the first. LINEAR maps ``c - w / 2`` and ``c + w / 2 - 1`` to the ends
    (part 3, C.11.2.1.2), LINEAR_EXACT ``c - w / 2`` and ``c + w / 2``.
    """
    centre, width = (_first(dataset.get(name)) for name in ("WindowCenter", "WindowWidth"))
    if centre is None or width is None:
        return None
    function = str(dataset.get("VOILUTFunction", "") or "LINEAR")
    if function == "SIGMOID":
        raise DataError(
            f"{shown}: its window is a sigmoid, which is not supported. Set data.intensity_window."
        )
    low, high = centre - width / 2, centre + width / 2 - (0 if function == "LINEAR_EXACT" else 1)
    return (low, high) if low < high else None


def _first(value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value if isinstance(value, int | float | str) else value[0])
    except (TypeError, ValueError, IndexError):
        return None
    return number if np.isfinite(number) else None
