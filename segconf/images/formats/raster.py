"""Pictures: JPEG, PNG, BMP and TIFF files of one image each; maps are written as PNG."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageChops
from numpy.typing import NDArray
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from segconf.conventions import FULL_SCALE
from segconf.errors import DataError
from segconf.images.decoding import decode, full_scale, grey_values, open_picture, turn_upright
from segconf.images.encoding import png_bytes
from segconf.images.image_format import ImageFormat, register
from segconf.images.resizing import Box, resize_picture
from segconf.images.types import ByteArray, Header, Image, ReadOptions, Size, check_ceiling

_WHITE = 255
_WHITE_OF_MODE = {"L": _WHITE, "I;16": FULL_SCALE, "I;16B": FULL_SCALE, "I": FULL_SCALE}
_PICTURE_AXES = 2
_REDUCED_MARGIN = 1.25


@register
class Raster(ImageFormat):
    """Pictures without geometry. The content decides which kind it is, not the suffix."""

    name = "raster"
    suffixes = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff"})
    map_suffix = ".png"

    def read_header(self, path: Path) -> Header:
        """Size and channels, without decoding."""
        with open_picture(path) as picture:
            return Header(size=picture.size, slices=1, channels=picture.channels)

    def read_image(self, path: Path, options: ReadOptions) -> Image:
        """Decode to (C, H, W), upright."""
        _check_slice(path, options.slice_index)
        with open_picture(path) as picture:
            check_ceiling(path, picture.size, 1, options.max_pixels)
            target = None if options.size is None else picture.stored(options.size)
            box = None if target is None else _reduce_decoding(picture.decoder, target)
            decode(picture.decoder)
            decoded = _with_channels(path, picture.decoder, options.channels)
            if target is not None:
                decoded = resize_picture(decoded, target, box=box)
            upright = turn_upright(np.asarray(decoded), picture.orientation)  # (H, W) or (H, W, C)
        pixels = np.ascontiguousarray(np.atleast_3d(upright).transpose(2, 0, 1))  # (C, H, W)
        return Image(pixels=pixels, path=path)

    def read_labels(self, path: Path, slice_index: int | None) -> NDArray[Any]:
        """Stored values, upright (H, W): grey levels or palette indices."""
        _check_slice(path, slice_index)
        with open_picture(path) as picture:
            decode(picture.decoder)
            return turn_upright(_single_band(path, picture.decoder), picture.orientation)

    def remarks(self, path: Path, channels: int) -> tuple[str, ...]:
        """Grey levels that became fewer, and grey that was repeated for a colour network."""
        found = []
        with open_picture(path) as picture:
            if picture.decoder.mode.startswith(("I", "F")):
                found.append("deep grey levels were reduced to 8 bits")
            if picture.channels == 1 and channels > 1:
                found.append("grey image, given to a network for colours")
        return tuple(found)

    def read_confidence(self, path: Path) -> NDArray[np.float32]:
        """Grey of 16 bits, or of 8: white is 1."""
        with open_picture(path) as picture:
            white = _WHITE_OF_MODE.get(picture.decoder.mode)
            if white is None:
                raise DataError(
                    f"{path}: {picture.decoder.mode} pixels. "
                    "A confidence map is a grey PNG of 16 bits."
                )
            decode(picture.decoder)
            levels = turn_upright(np.asarray(picture.decoder), picture.orientation)
        return np.ascontiguousarray(levels / np.float64(white), np.float32)

    def confidence_bits(self, path: Path) -> int:
        """8 or 16."""
        with open_picture(path) as picture:
            return 8 if _WHITE_OF_MODE.get(picture.decoder.mode, 0) < FULL_SCALE else 16

    def write_labels(self, path: Path, labels: NDArray[np.uint8], like: Image | None) -> None:  # noqa: ARG002 - pictures have no geometry
        """Write 8-bit grey PNG."""
        _write_grey(path, labels)

    def write_confidence(
        self,
        path: Path,
        confidence: NDArray[Any],
        like: Image | None,  # noqa: ARG002 - pictures have no geometry
    ) -> None:
        """Write 16-bit grey PNG, 0..65535, rounded."""
        if confidence.dtype != np.uint16:
            scaled = confidence.astype(np.float64) * FULL_SCALE
            confidence = np.rint(scaled).astype(np.uint16)
        _write_grey(path, confidence)


def _write_grey(path: Path, pixels: NDArray[Any]) -> None:
    suffix = path.suffix.lower()
    if suffix != Raster.map_suffix or pixels.ndim != _PICTURE_AXES:
        raise ValueError(f"{path}: {pixels.ndim} axes cannot be written as {suffix!r}")
    path.write_bytes(png_bytes(pixels))


def _check_slice(path: Path, slice_index: int | None) -> None:
    if slice_index not in (None, 0):
        raise ValueError(f"{path} is a picture: it has no slice {slice_index}")


def _reduce_decoding(decoder: ImageFile, target: Size) -> Box | None:
    """Let a JPEG be decoded at 1/2, 1/4 or 1/8 while it stays a quarter larger than the target.

    Returns:
        The part of the reduced picture that covers the original one exactly (sides that are no
        multiple of 8 leave a fraction of a pixel over), or None where nothing was reduced.
    """
    # Not CMYK: its conversion to RGB is a product, which does not commute with averaging.
    if not isinstance(decoder, JpegImageFile) or decoder.mode == "CMYK":
        return None
    height, width = target
    reduced = decoder.draft(
        decoder.mode, (math.ceil(_REDUCED_MARGIN * width), math.ceil(_REDUCED_MARGIN * height))
    )
    return reduced[1] if reduced else None


def _with_channels(path: Path, decoder: ImageFile, channels: int) -> PIL.Image.Image:
    """The decoded pixels as 8-bit grey, RGB, or the file's own bands where that many are asked."""
    if channels not in (1, 3):
        if len(decoder.getbands()) != channels:
            raise DataError(
                f"{path}: {channels} channels were asked for, the file has "
                f"{len(decoder.getbands())} ({decoder.mode}). Set model.channels to 1 or 3, or "
                "give files with as many channels."
            )
        return decoder
    picture: PIL.Image.Image = decoder
    if decoder.mode.startswith("I") or decoder.mode == "F":
        picture = PIL.Image.fromarray(_grey_bytes(path, decoder))
    elif decoder.mode == "CMYK":
        # Adobe stores inks inverted and marks the file; pillow takes the mark for granted.
        unmarked = isinstance(decoder, JpegImageFile) and "adobe" not in decoder.info
        picture = (PIL.ImageChops.invert(decoder) if unmarked else decoder).convert("RGB")
    return picture.convert("L" if channels == 1 else "RGB")


def _grey_bytes(path: Path, decoder: ImageFile) -> ByteArray:
    """Deep grey levels to 0..255 by the range the format declares, never by the image's own."""
    values = grey_values(decoder)  # (H, W)
    if values.dtype == np.float32:
        if not (values.min() >= 0 and values.max() <= 1):
            raise DataError(
                f"{path}: floating-point pixels between {values.min():g} and {values.max():g}. "
                "Only 0..1 has a known meaning: save the picture with 8 or 16 bits."
            )
        return np.asarray(np.rint(values * 255), np.uint8)
    full = full_scale(decoder)
    if full is None:
        raise DataError(
            f"{path}: signed or 32-bit integer pixels have no declared black and white. "
            "Save the picture with 8 or 16 bits."
        )
    return np.asarray((values.astype(np.uint32) * 510 + full) // (2 * full), np.uint8)


def _single_band(path: Path, decoder: ImageFile) -> NDArray[Any]:
    """One value per pixel (H, W): grey level, or palette index."""
    match decoder.mode:
        case "1" | "L":
            return np.asarray(decoder).astype(np.uint8, copy=False)
        case "P":
            _check_palette(path, decoder)
            return np.asarray(decoder)
        case "LA" | "RGB" | "RGBA":
            bands = [np.asarray(band) for band in decoder.split()]
            _check_bands(path, decoder.mode, bands)
            return bands[0]
        case mode if mode.startswith("I") or mode == "F":
            return grey_values(decoder)
        case mode:
            raise DataError(
                f"{path}: the mask has {mode} pixels. Save it as a grey or palette PNG whose "
                "values are the class indices."
            )


def _check_bands(path: Path, mode: str, bands: list[ByteArray]) -> None:
    """Colours must be grey and alpha constant: else it is unknown which of them is the mask."""
    if mode.endswith("A") and bands[-1].min() != bands[-1].max():
        raise DataError(
            f"{path}: the mask has a transparency that varies, so it is unclear whether the class "
            "is in the colour or in the transparency. Save it as grey or palette PNG without alpha."
        )
    if mode.startswith("RGB") and not all(np.array_equal(bands[0], band) for band in bands[1:3]):
        raise DataError(
            f"{path}: the mask is coloured. Save it as a grey or palette PNG whose values are the "
            "class indices, or exchange the folders if it is an image."
        )


def _check_palette(path: Path, decoder: ImageFile) -> None:
    """A palette of black and white must mean by its colours what it means by its indices."""
    palette = np.array(decoder.getpalette("RGB"), np.uint8).reshape(-1, 3)
    used = [index for index in np.flatnonzero(decoder.histogram()) if index < len(palette)]
    black = {index for index in used if not palette[index].any()}
    white = {index for index in used if (palette[index] == _WHITE).all()}
    if black | white == set(used) and white and (0 in white or black - {0}):
        raise DataError(
            f"{path}: the palette draws class 0 white or another class black, so colours and "
            "indices contradict each other. Save the mask as grey PNG."
        )
