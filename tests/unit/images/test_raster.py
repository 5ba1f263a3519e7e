"""Pictures of every kind come out as the pixels that were put into them."""

import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import PIL.Image
import pytest

from segconf.errors import DataError
from segconf.images.image_format import case_name, image_suffix, image_suffixes
from segconf.images.io import read_header, read_image

GREY = np.array([[0, 50, 100], [150, 200, 255]], np.uint8)
COLOUR = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14  # (H, W, C)


def save(path, array, **options):
    PIL.Image.fromarray(array).save(path, **options)
    return path


def png_chunk(name, content):
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


def raw_png(path, shape, depth, colour_type, rows, late=b""):
    """A PNG file byte by byte, for what pillow cannot write."""
    height, width = shape
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))
        + png_chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
        + late
        + png_chunk(b"IEND", b"")
    )
    return path


def raw_tiff(path, values, *, bits, white_is_zero=False, order="<"):
    """An uncompressed grey TIFF file of one row, byte by byte."""
    width, data = values
    tags = {256: width, 257: 1, 258: bits, 259: 1, 262: 0 if white_is_zero else 1}
    tags |= {273: 8 + 2 + 12 * 9 + 4, 277: 1, 278: 1, 279: len(data)}
    entries = b"".join(
        struct.pack(order + "HHIHH", tag, 3, 1, value, 0) for tag, value in sorted(tags.items())
    )
    start = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    path.write_bytes(
        start + struct.pack(order + "H", len(tags)) + entries + struct.pack(order + "I", 0) + data
    )
    return path


def exif(orientation):
    tags = PIL.Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize(
    ("name", "suffix", "case"),
    [
        ("a.JPG", ".jpg", "a"),
        ("scan.v2.nii.gz", ".nii.gz", "scan.v2"),
        ("Scan.NII.GZ", ".nii.gz", "Scan"),
        ("x.nii", ".nii", "x"),
        ("notes.gz", "", "notes"),
        (".png", "", ".png"),
        ("movie.gif", "", "movie"),
    ],
)
def test_suffix_and_case_name(name, suffix, case):
    assert (image_suffix(f"some.folder/{name}"), case_name(f"some.folder/{name}")) == (suffix, case)


def test_supported_suffixes():
    pictures = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff"}
    volumes = {".nii", ".nii.gz", ".dcmseries"}  # and DICOM pictures
    assert pictures | volumes | {".dcm", ".dicom"} == image_suffixes()


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_colour_is_read_channel_by_channel(tmp_path, suffix):
    image = read_image(save(tmp_path / f"a.{suffix}", COLOUR))
    np.testing.assert_array_equal(image.pixels, COLOUR.transpose(2, 0, 1))
    assert image.pixels.dtype == np.uint8
    assert image.pixels.flags.c_contiguous
    assert (image.affine, image.spacing, image.spatial_shape) == (None, None, (2, 3))


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_grey_is_repeated_for_three_channels(tmp_path, suffix):
    path = save(tmp_path / f"a.{suffix}", GREY)
    np.testing.assert_array_equal(read_image(path).pixels, np.stack([GREY] * 3))
    np.testing.assert_array_equal(read_image(path, channels=1).pixels, GREY[None])


def test_colour_asked_as_one_channel_is_luma(tmp_path):
    pixels = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 20, 30]]], np.uint8)
    # 0.299 R + 0.587 G + 0.114 B: 76.245, 149.685, 29.07, 2.99 + 11.74 + 3.42 = 18.15
    read = read_image(save(tmp_path / "a.png", pixels), channels=1).pixels
    assert read.tolist() == [[[76, 150, 29, 18]]]


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_one_bit(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    PIL.Image.fromarray(np.array([[0, 255, 255]], np.uint8)).convert("1").save(path)
    assert read_image(path).pixels.tolist() == [[[0, 255, 255]]] * 3


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_alpha_is_dropped_and_stored_colours_stay(tmp_path, suffix):
    alpha = np.array([[0, 128, 255], [255, 1, 0]], np.uint8)
    path = save(tmp_path / f"a.{suffix}", np.dstack([COLOUR, alpha]))
    np.testing.assert_array_equal(read_image(path).pixels, COLOUR.transpose(2, 0, 1))
    np.testing.assert_array_equal(read_image(path, channels=4).pixels[3], alpha)
    assert read_header(path).channels == 3


def test_grey_with_alpha(tmp_path):
    path = raw_png(tmp_path / "a.png", (1, 2), 8, 4, [bytes([77, 0, 200, 255])])
    assert read_image(path).pixels.tolist() == [[[77, 200]]] * 3
    assert read_image(path, channels=1).pixels.tolist() == [[[77, 200]]]


@pytest.mark.parametrize("transparency", [None, 1, bytes([0, 128, 255])])
def test_palette_with_and_without_transparency(tmp_path, transparency):
    picture = PIL.Image.fromarray(np.array([[0, 1, 2]], np.uint8))
    picture.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    options = {} if transparency is None else {"transparency": transparency}
    picture.save(tmp_path / "a.png", **options)
    read = read_image(tmp_path / "a.png").pixels
    assert read[:, 0].tolist() == [[10, 40, 70], [20, 50, 80], [30, 60, 90]]
    assert read_header(tmp_path / "a.png").channels == 3


def test_transparent_colour_of_an_rgb_png_stays(tmp_path):
    save(tmp_path / "a.png", COLOUR, transparency=(0, 14, 28))
    np.testing.assert_array_equal(read_image(tmp_path / "a.png").pixels, COLOUR.transpose(2, 0, 1))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bit_grey_is_scaled_from_its_declared_range(tmp_path, suffix):
    levels = np.array([[0, 128, 129, 257, 1000, 40000, 65535]], np.uint16)
    # Divided by 257 and rounded: 0.498, 0.502, 1, 3.89, 155.64, 255. A dark image stays dark.
    path = save(tmp_path / f"a.{suffix}", levels)
    assert read_image(path, channels=1).pixels.tolist() == [[[0, 0, 1, 1, 4, 156, 255]]]
    assert read_image(path).pixels.shape == (3, 1, 7)


@pytest.mark.parametrize(("order", "white_is_zero"), [("<", False), ("<", True), (">", False)])
def test_sixteen_bit_tiff_of_both_byte_orders_and_polarities(tmp_path, order, white_is_zero):
    data = (3, struct.pack(order + "3H", 0, 100 * 257, 65535))
    path = raw_tiff(tmp_path / "a.tif", data, bits=16, white_is_zero=white_is_zero, order=order)
    expected = [255, 155, 0] if white_is_zero else [0, 100, 255]
    assert read_image(path, channels=1).pixels.tolist() == [[expected]]


def test_twelve_bit_tiff_has_its_white_at_4095(tmp_path):
    path = raw_tiff(tmp_path / "a.tif", (2, bytes([0xFF, 0xF8, 0x00])), bits=12)
    assert read_image(path, channels=1).pixels.tolist() == [[[255, 128]]]  # 2048 / 4095 * 255


def test_sixteen_bit_colour_is_right_to_within_rounding(tmp_path):
    levels = [65535, 32768, 33000, 0, 255, 60000]
    path = raw_png(tmp_path / "a.png", (1, 2), 16, 2, [struct.pack(">6H", *levels)])
    read = read_image(path).pixels[:, 0].T.ravel()
    assert np.abs(read - np.array(levels) / 257).max() <= 1


def test_float_tiff_between_0_and_1(tmp_path):
    path = save(tmp_path / "a.tif", np.array([[0, 0.5, 0.25, 1]], np.float32))
    # 127.5 rounds to the even 128, 63.75 to 64
    assert read_image(path, channels=1).pixels.tolist() == [[[0, 128, 64, 255]]]


@pytest.mark.parametrize("bad", [-0.5, 1.5, 300, np.nan])
def test_float_tiff_of_unknown_range_is_refused(tmp_path, bad):
    path = save(tmp_path / "a.tif", np.array([[0, bad]], np.float32))
    with pytest.raises(DataError, match=r"a\.tif: floating-point pixels.*8 or 16 bits"):
        read_image(path)


def test_integer_tiff_of_unknown_range_is_refused(tmp_path):
    path = save(tmp_path / "a.tif", np.array([[0, 7]], np.int32))
    with pytest.raises(DataError, match=r"32-bit integer pixels.*8 or 16 bits"):
        read_image(path)


def test_cmyk_jpeg(tmp_path):
    inks = np.zeros((16, 16, 4), np.uint8)
    inks[...] = (0, 255, 51, 0)  # R = 255, G = 255 - 255 = 0, B = 255 - 51 = 204
    PIL.Image.frombytes("CMYK", (16, 16), inks.tobytes()).save(tmp_path / "adobe.jpg", quality=100)
    red, green, blue = read_image(tmp_path / "adobe.jpg").pixels.astype(int)
    assert max(abs(red - 255).max(), green.max(), abs(blue - 204).max()) <= 2

    # pillow writes inks inverted and says so in an Adobe segment, like Photoshop does. Without the
    # segment the stored numbers are the inks themselves: 255, 0, 204 with full black, so black.
    content = (tmp_path / "adobe.jpg").read_bytes()
    start = content.index(b"\xff\xee")
    length = struct.unpack(">H", content[start + 2 : start + 4])[0]
    (tmp_path / "plain.jpg").write_bytes(content[:start] + content[start + 2 + length :])
    assert read_image(tmp_path / "plain.jpg").pixels.max() <= 2
    assert read_image(tmp_path / "adobe.jpg", channels=1).pixels.shape == (1, 16, 16)


@pytest.mark.skipif(
    int(PIL.__version__.partition(".")[0]) < 13, reason="this Pillow cannot read such files itself"
)
def test_ycbcr_tiff(tmp_path):
    # Y = 128 with Cb = Cr = 128 is neutral grey.
    PIL.Image.new("YCbCr", (8, 8), (128, 128, 128)).save(tmp_path / "a.tif")
    assert np.unique(read_image(tmp_path / "a.tif").pixels).tolist() == [128]


def test_the_content_decides_not_the_suffix(tmp_path):
    PIL.Image.fromarray(np.full((8, 8, 3), 90, np.uint8)).save(tmp_path / "a.jpg")
    path = (tmp_path / "a.jpg").rename(tmp_path / "a.png")
    assert np.abs(read_image(path).pixels.astype(int) - 90).max() <= 1


def test_other_channel_counts_must_be_those_of_the_file(tmp_path):
    path = save(tmp_path / "a.png", COLOUR)
    with pytest.raises(DataError, match=r"a\.png: 5 channels were asked for, the file has 3"):
        read_image(path, channels=5)


def test_orientation_stored_after_the_pixels_of_a_png(tmp_path):
    content = exif(6).tobytes().removeprefix(b"Exif\0\0")
    rows = [bytes([1, 2, 3]), bytes([4, 5, 6])]
    path = raw_png(tmp_path / "a.png", (2, 3), 8, 0, rows, png_chunk(b"eXIf", content))
    assert read_header(path).size == (3, 2)
    assert read_image(path, channels=1).pixels.tolist() == [[[4, 1], [5, 2], [6, 3]]]


@pytest.mark.parametrize("suffix", ["png", "bmp", "jpg", "tif"])
def test_pictures_past_pillows_limit_are_read_up_to_the_ceiling(tmp_path, monkeypatch, suffix):
    path = save(tmp_path / f"a.{suffix}", np.full((16, 32), 7, np.uint8))
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 10)
    assert read_image(path, max_pixels=512).pixels.shape == (3, 16, 32)
    assert PIL.Image.MAX_IMAGE_PIXELS == 10
    with pytest.raises(DataError, match=r"16 x 32, more than the ceiling of 511.*data\.max_pixels"):
        read_image(path, max_pixels=511)


def test_the_ceiling_is_checked_before_memory_is_taken(tmp_path):
    path = raw_png(tmp_path / "a.png", (100_000, 100_000), 8, 2, [b""])
    assert read_header(path).size == (100_000, 100_000)
    with pytest.raises(DataError, match="more than the ceiling of 1000000000 pixels"):
        read_image(path)


def test_many_threads_read_the_same_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 500)
    paths = []
    for index in range(48):
        suffix = ("jpg", "png", "tif")[index % 3]
        array = np.full((40, 40 + index, 3), 5 * index, np.uint8)
        paths.append(save(tmp_path / f"{index}.{suffix}", array, exif=exif(1 + index % 8)))
    alone = [read_image(path, size=(9, 10)).pixels for path in paths]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda path: read_image(path, size=(9, 10)).pixels, paths))
    np.testing.assert_array_equal(np.stack(alone), np.stack(together))
    assert [int(pixels.max()) for pixels in alone] == pytest.approx(
        [5 * index for index in range(48)], abs=1
    )
    assert PIL.Image.MAX_IMAGE_PIXELS == 500
