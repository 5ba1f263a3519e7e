"""What every image format must do, and how a package of others adds one."""

import subprocess
import sys

import nibabel
import numpy as np
import PIL.Image
import pytest

from segconf.data.cases import pair_folder
from segconf.errors import ConfigError, DataError
from segconf.images.image_format import case_name, format_of, formats, image_suffix, image_suffixes
from segconf.images.io import (
    confidence_bits,
    read_confidence,
    read_header,
    read_image,
    read_probabilities,
    write_confidence,
    write_mask,
)
from segconf.images.masks import read_mask
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from tests.dicom_objects import enhanced, photograph
from tests.tiny_models import write_checkpoint

OBLIQUE = np.array(
    [[-1.6, 0.0, 1.2, -40], [0.0, -0.5, 0.0, 7], [1.2, 0.0, 1.6, 3], [0, 0, 0, 1]], np.float64
)
GREY = np.random.default_rng(0).integers(0, 256, (12, 9), dtype=np.uint8)
VOLUME = np.random.default_rng(1).integers(0, 256, (3, 12, 9), dtype=np.uint8)


def save_picture(path, array):
    PIL.Image.fromarray(array).save(path)


def save_nifti(path, array):
    nibabel.save(nibabel.Nifti1Image(array.T, OBLIQUE), path)


def save_dicom(path, array):
    photograph(path, array, photometric="MONOCHROME2")


def save_dicom_series(path, array):
    """Frames of one object whose places are those of OBLIQUE, in the axes of DICOM."""
    volume = array.reshape(-1, *array.shape[-2:])
    places = np.array([40.0, -7.0, 3.0]) + np.arange(len(volume))[:, None] * [-1.2, 0, 1.6]
    plane = ([0.8, 0, 0.6, 0, 1, 0], [0.5, 2.0])
    enhanced(path, volume, places=places, plane=plane, windowed=False)


SAVE = {
    "raster": save_picture,
    "nifti": save_nifti,
    "dicom": save_dicom,
    "dicom_series": save_dicom_series,
}
"""How another program writes grey levels (H, W), or (D, H, W) if a file can have slices."""

NAMES = formats.names()
EVERY_SUFFIX = pytest.mark.parametrize(
    ("name", "suffix"),
    [(name, suffix) for name in NAMES for suffix in sorted(formats.get(name).suffixes)],
)


@pytest.fixture(params=NAMES)
def image_format(request):
    """Every registered format."""
    return formats.get(request.param)


@pytest.fixture
def sample(image_format, tmp_path):
    """A file of the format with as many axes as it can have."""
    path = tmp_path / f"sample{min(image_format.suffixes)}"
    SAVE[image_format.name](path, VOLUME if image_format.has_slices else GREY)
    return path


def test_a_format_describes_itself(image_format):
    assert image_format.name in NAMES
    assert image_format.__doc__
    assert image_format.suffixes
    assert all(suffix[0] == "." and suffix == suffix.lower() for suffix in image_format.suffixes)
    map_format = format_of(f"a{image_format.map_suffix}")
    assert map_format.has_slices or not image_format.has_slices


def test_suffixes_belong_to_one_format():
    suffixes = [suffix for name in NAMES for suffix in formats.get(name).suffixes]
    assert len(suffixes) == len(set(suffixes))
    assert set(suffixes) == image_suffixes()


@EVERY_SUFFIX
def test_a_file_name_finds_its_format(name, suffix):
    for path in (f"some.folder/a.b{suffix}", f"A{suffix.upper()}"):
        assert format_of(path).name == name
        assert image_suffix(path) == suffix
    assert case_name(f"some.folder/a.b{suffix}") == "a.b"


@EVERY_SUFFIX
def test_the_header_is_what_is_read(tmp_path, name, suffix):
    for array in (GREY, VOLUME) if formats.get(name).has_slices else (GREY,):
        path = tmp_path / f"a{suffix}"
        SAVE[name](path, array)
        header, image = read_header(path), read_image(path, channels=1)
        assert header.size == array.shape[-2:]
        assert header.slices == (1 if array.ndim == 2 else len(array))
        assert header.channels == len(image.pixels) == 1
        assert image.spatial_shape == array.shape
        assert image.path == path
        assert image.pixels.dtype == np.uint8
        assert image.pixels.flags.c_contiguous
        assert len(read_image(path).pixels) == 3


def test_slices_are_those_of_the_whole(sample):
    whole = read_image(sample, channels=1).pixels.reshape(1, -1, 12, 9)  # (C, D, H, W)
    for index in range(read_header(sample).slices):
        one = read_image(sample, channels=1, slice_index=index)
        np.testing.assert_array_equal(one.pixels, whole[:, index])


def test_size_and_ceiling(sample):
    assert read_image(sample, size=(5, 7)).spatial_shape[-2:] == (5, 7)
    header = read_header(sample)
    pixels = header.size[0] * header.size[1] * header.slices
    assert read_image(sample, max_pixels=pixels).spatial_shape[-2:] == (12, 9)
    with pytest.raises(DataError, match=rf"more than the ceiling of {pixels - 1} pixels"):
        read_image(sample, max_pixels=pixels - 1)


def test_mask_round_trip(tmp_path, image_format, sample):
    image = read_image(sample)
    mask = np.random.default_rng(2).integers(0, 3, image.spatial_shape)
    path = tmp_path / f"mask{image_format.map_suffix}"
    write_mask(path, mask, like=image)
    np.testing.assert_array_equal(read_mask(path, classes=3, image=read_header(sample)), mask)
    assert {file.name for file in tmp_path.iterdir()} == {sample.name, path.name}


@EVERY_SUFFIX
def test_masks_of_other_programs(tmp_path, name, suffix):
    if suffix in {".jpg", ".jpeg"}:
        pytest.skip("levels of a JPEG file are not exact")
    mask = GREY % 3
    SAVE[name](tmp_path / f"a{suffix}", mask)
    np.testing.assert_array_equal(read_mask(tmp_path / f"a{suffix}", classes=3), mask)


def test_confidence_round_trip(tmp_path, image_format, sample):
    image = read_image(sample)
    levels = np.random.default_rng(3).integers(0, 65536, image.spatial_shape).astype(np.uint16)
    levels.flat[:2] = (0, 65535)
    path = tmp_path / f"confidence{image_format.map_suffix}"
    write_confidence(path, levels, like=image)
    read = read_confidence(path)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(np.rint(read.astype(np.float64) * 65535), levels)
    assert confidence_bits(path) in (0, 16)

    write_confidence(path, read, like=image)
    np.testing.assert_array_equal(read_confidence(path), read)


def test_probabilities_of_other_tools(tmp_path, image_format, sample):
    path = tmp_path / f"probabilities{image_format.map_suffix}"
    if format_of(path).stores_probabilities:
        values = np.random.default_rng(4).random((2, *VOLUME.shape)).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(values.T, OBLIQUE), path)  # (columns, ..., classes)
        np.testing.assert_array_equal(read_probabilities(path), values)
    else:
        with pytest.raises(DataError, match="no probabilities"):
            read_probabilities(sample)


def test_maps_lie_where_the_image_lies(tmp_path, image_format, sample):
    image = read_image(sample)
    assert (image.affine is None) == (image.spacing is None)
    if image.affine is None:
        return
    np.testing.assert_allclose(image.affine, OBLIQUE, atol=1e-6)
    assert image.spacing == pytest.approx((2, 0.5, 2)[-len(image.spacing) :])
    suffix = image_format.map_suffix
    write_mask(tmp_path / f"m{suffix}", np.zeros(image.spatial_shape, np.uint8), like=image)
    write_confidence(tmp_path / f"c{suffix}", np.ones(image.spatial_shape), like=image)
    for path in (tmp_path / f"m{suffix}", tmp_path / f"c{suffix}"):
        written = read_image(path)
        np.testing.assert_allclose(written.affine, image.affine, atol=1e-6)
        assert written.spacing == pytest.approx(image.spacing)


def test_maps_of_another_grid_are_not_written(tmp_path, image_format, sample):
    path = tmp_path / f"m{image_format.map_suffix}"
    with pytest.raises(ValueError, match="its image has"):
        write_mask(path, np.zeros((9, 12), np.uint8), like=read_image(sample))
    assert not path.exists()


@EVERY_SUFFIX
@pytest.mark.parametrize("damage", ["empty", "truncated", "text", "missing", "folder"])
def test_files_that_cannot_be_used_are_named(tmp_path, name, suffix, damage):
    path = tmp_path / f"a{suffix}"
    SAVE[name](path, np.random.default_rng(5).integers(0, 256, (64, 48), dtype=np.uint8))
    content = path.read_bytes()
    path.unlink()
    match damage:
        case "empty":
            path.touch()
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "text":
            path.write_text("no image at all\n" * 100)
        case "folder":
            path.mkdir()
    readers = [read_image, read_mask] if damage == "truncated" else [read_header, read_image]
    for read in readers:
        with pytest.raises(DataError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: ")


def test_remarks_are_phrases(image_format, sample):
    for channels in (1, 3):
        remarks = image_format.remarks(sample, channels)
        assert all(remark == remark.strip() for remark in remarks)


def test_remarks_of_pictures(tmp_path):
    save_picture(tmp_path / "deep.png", GREY.astype(np.uint16) * 257)
    save_picture(tmp_path / "colour.png", np.dstack([GREY] * 3))
    raster = formats.get("raster")
    deep, colour = "deep grey levels were reduced to 8 bits", "grey image, given to a network"
    first, second = raster.remarks(tmp_path / "deep.png", 3)
    assert (first, second[: len(colour)]) == (deep, colour)
    assert raster.remarks(tmp_path / "deep.png", 1) == (deep,)
    assert raster.remarks(tmp_path / "colour.png", 3) == ()


def test_formats_need_no_torch():
    code = (
        "import sys; from segconf.images.io import format_of; format_of('a.nii.gz');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PGM = '''
"""Portable graymaps: a text header, then a byte for every pixel."""

import numpy as np

from segconf.errors import DataError
from segconf.images.image_format import ImageFormat
from segconf.images.resizing import resize_pixels
from segconf.images.types import Header, Image


class Pgm(ImageFormat):
    """Grey pictures of 8 bits."""

    name = "pgm"
    suffixes = frozenset({".pgm"})
    map_suffix = ".png"

    def read_header(self, path):
        return Header(size=self.read_labels(path, None).shape, slices=1, channels=1)

    def read_image(self, path, options):
        pixels = self.read_labels(path, None)[None].repeat(options.channels, axis=0)
        return Image(pixels if options.size is None else resize_pixels(pixels, options.size), path)

    def read_labels(self, path, slice_index):
        kind, width, height, _, content = path.read_bytes().split(maxsplit=4)
        if kind != b"P5":
            raise DataError(f"{path}: not a graymap. Export it again.")
        return np.frombuffer(content, np.uint8).reshape(int(height), int(width))

    def remarks(self, path, channels):
        return ("a graymap",)
'''


def install(folder, name, entry_point, source):
    """A package with one module and an entry point, as pip would leave it."""
    (folder / f"{name}.py").write_text(source)
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[segconf.formats]\n{entry_point}\n")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder of installed packages; formats are looked for again afterwards."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(folder)
    yield folder
    monkeypatch.undo()
    for module in set(sys.modules) - modules:
        if getattr(sys.modules[module], "__file__", None) == str(folder / f"{module}.py"):
            del sys.modules[module]
    formats.refresh()


@pytest.fixture
def graymaps(packages, tmp_path):
    """A folder with an image in the format of another package."""
    install(packages, "graymaps", "pgm = graymaps:Pgm", PGM)
    formats.refresh()
    folder = tmp_path / "images"
    folder.mkdir()
    rows, columns = np.mgrid[:40, :48]
    pixels = (2 * rows + 3 * columns % 97).astype(np.uint8)
    (folder / "a.pgm").write_bytes(b"P5\n48 40\n255\n" + pixels.tobytes())
    save_picture(tmp_path / "same.png", pixels)
    return folder


def test_a_package_adds_a_format(graymaps, tmp_path):
    path = graymaps / "a.pgm"
    assert formats.names() == (*sorted([*NAMES, "pgm"]),)
    assert ".pgm" in image_suffixes()
    assert read_header(path).size == (40, 48)
    same = read_image(tmp_path / "same.png")
    np.testing.assert_array_equal(read_image(path).pixels, same.pixels)
    assert case_name(path) == "a"
    assert [case.id for case in pair_folder(graymaps, None).cases] == ["a"]
    assert [source.case for source in find_images([graymaps]).items] == ["a"]
    assert PredictionFolder(tmp_path).map_suffix(CaseRow("a", "a.pgm")) == ".png"
    with pytest.raises(DataError, match=r"looked for .*\.pgm"):
        find_images([tmp_path / "site-packages" / "graymaps-1.0.dist-info"])
    with pytest.raises(DataError, match=r"a\.pgm: pgm files hold no confidence maps"):
        read_confidence(path)
    with pytest.raises(ValueError, match="not written as pgm"):
        write_mask(tmp_path / "m.pgm", np.zeros((2, 2), np.uint8))


def test_images_of_a_new_format_are_predicted(graymaps, tmp_path):
    model = load_model(write_checkpoint(tmp_path / "best.safetensors"), device="cpu")
    report = predict(model, find_images([graymaps]), tmp_path / "maps")
    (row,) = report.rows
    assert row.error == ""
    assert "note: a graymap" in row.flags
    predict(model, find_images([tmp_path / "same.png"]), tmp_path / "expected")
    for kind in ("masks", "confidence"):
        found = (tmp_path / "maps" / kind / "a.png").read_bytes()
        assert found == (tmp_path / "expected" / kind / "same.png").read_bytes()


def test_a_removed_package_is_forgotten(graymaps, packages):
    assert read_header(graymaps / "a.pgm").slices == 1
    (packages / "graymaps-1.0.dist-info" / "entry_points.txt").unlink()
    formats.refresh()
    assert formats.names() == NAMES
    with pytest.raises(DataError, match=r"a\.pgm: unknown image format"):
        read_header(graymaps / "a.pgm")


def test_a_package_that_cannot_be_imported_is_named(packages):
    install(packages, "broken", "broken = broken:Missing", "")
    formats.refresh()
    with pytest.raises(ConfigError, match=r"image format broken: broken:Missing cannot be imp"):
        read_header("a.png")


def test_two_formats_with_one_suffix_are_named(packages):
    install(packages, "rival", "rival = rival:Pgm", PGM.replace(".pgm", ".png"))
    formats.refresh()
    with pytest.raises(ConfigError, match=r"raster and pgm: both have the suffix \.png"):
        read_header("a.png")
