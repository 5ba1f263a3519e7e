"""DICOM: photographs, slices, series and enhanced objects; what is refused, and privacy."""

import io
import subprocess
import sys

import highdicom
import numpy as np
import PIL.Image
import pydicom
import pytest
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless, JPEGBaseline8Bit, generate_uid

from segconf.data.cases import pair_folder
from segconf.errors import DataError
from segconf.images.dicom_files import files_of, group_files
from segconf.images.dicom_segmentation import Segmentation
from segconf.images.io import read_header, read_image, write_mask
from segconf.images.masks import read_mask
from segconf.inference.sources import find_images
from tests.dicom_objects import (
    enhanced,
    new_object,
    photograph,
    positions,
    save,
    series,
    set_pixels,
)

RNG = np.random.default_rng(0)
PICTURE = RNG.integers(0, 256, (20, 30, 3), np.uint8)
VOLUME = RNG.integers(0, 2000, (6, 8, 10), np.int16)


def found(folder):
    """The one image of a folder."""
    (source,) = find_images([folder]).items
    return source


def test_colours_are_read_as_they_are(tmp_path):
    path = photograph(tmp_path / "a.dcm", PICTURE)
    np.testing.assert_array_equal(read_image(path).pixels, PICTURE.transpose(2, 0, 1))
    assert read_header(path).channels == 3


def test_ybr_becomes_rgb(tmp_path):
    ybr = np.asarray(PIL.Image.fromarray(PICTURE).convert("YCbCr"))
    path = photograph(tmp_path / "a.dcm", ybr, photometric="YBR_FULL")
    expected = np.asarray(PIL.Image.fromarray(ybr, "YCbCr").convert("RGB"), np.int16)
    assert np.abs(read_image(path).pixels.transpose(1, 2, 0) - expected).max() <= 2


def test_a_palette_becomes_colours(tmp_path):
    table = RNG.integers(0, 256, (256, 3)).astype(np.uint16) * 257
    index = RNG.integers(0, 256, (20, 30), np.uint8)
    names = ("Red", "Green", "Blue")
    lut = {f"{name}PaletteColorLookupTableDescriptor": [256, 0, 16] for name in names}
    data = {
        f"{name}PaletteColorLookupTableData": table[:, channel].tobytes()
        for channel, name in enumerate(names)
    }
    path = photograph(tmp_path / "a.dcm", index, photometric="PALETTE COLOR", **lut, **data)
    expected = (table[index] // 257).transpose(2, 0, 1)
    np.testing.assert_array_equal(read_image(path).pixels, expected)


@pytest.mark.parametrize(
    ("syntax", "kind", "options"),
    [(JPEGBaseline8Bit, "JPEG", {"quality": 95}), (JPEG2000Lossless, "JPEG2000", {"mct": 1})],
)
def test_compressed_photographs(tmp_path, syntax, kind, options):
    smooth = np.asarray(PIL.Image.fromarray(PICTURE[:4, :6]).resize((48, 32)))
    stream = io.BytesIO()
    PIL.Image.fromarray(smooth).save(stream, kind, **options)
    dataset = pydicom.dcmread(photograph(tmp_path / "a.dcm", smooth))
    dataset.PixelData = encapsulate([stream.getvalue()])
    dataset["PixelData"].VR = "OB"
    dataset.PhotometricInterpretation = "YBR_FULL_422" if kind == "JPEG" else "YBR_RCT"
    dataset.file_meta.TransferSyntaxUID = syntax
    save(dataset, tmp_path / "a.dcm")

    pixels = read_image(tmp_path / "a.dcm").pixels.transpose(1, 2, 0).astype(int)

    expected = np.asarray(PIL.Image.open(stream).convert("RGB"), int)
    assert np.abs(pixels - expected).max() <= (6 if kind == "JPEG" else 0)


@pytest.mark.parametrize(
    ("elements", "window", "expected"),
    [
        # LINEAR: 40 - 200 / 2 = -60 is black, 40 + 200 / 2 - 1 = 139 white.
        ({"WindowCenter": "40", "WindowWidth": "200"}, None, lambda hu: (hu + 60) / 199),
        (
            {"WindowCenter": ["40", "0"], "WindowWidth": ["200", "1"]},
            None,
            lambda hu: (hu + 60) / 199,
        ),
        (
            {"WindowCenter": "40", "WindowWidth": "200", "VOILUTFunction": "LINEAR_EXACT"},
            None,
            lambda hu: (hu + 60) / 200,
        ),
        (
            {"WindowCenter": "40", "WindowWidth": "200"},
            (-100.0, 300.0),
            lambda hu: (hu + 100) / 400,
        ),
    ],
)
def test_intensities_of_the_window_become_grey_levels(tmp_path, elements, window, expected):
    stored = np.arange(600, dtype=np.int16).reshape(20, 30)
    path = photograph(
        tmp_path / "a.dcm",
        stored,
        photometric="MONOCHROME2",
        RescaleSlope="2",
        RescaleIntercept="-500",
        **elements,
    )
    levels = np.rint(expected(2.0 * stored - 500).clip(0, 1) * 255)
    np.testing.assert_array_equal(read_image(path, channels=1, window=window).pixels[0], levels)


def test_monochrome1_is_inverted_and_signed_pixels_are_signed(tmp_path):
    stored = np.array([[-100, -50], [0, 100]], np.int16)
    window = {"WindowCenter": "0.5", "WindowWidth": "201"}  # -100 to 100
    path = photograph(tmp_path / "a.dcm", stored, photometric="MONOCHROME1", **window)
    np.testing.assert_array_equal(read_image(path, channels=1).pixels[0], [[255, 191], [127, 0]])


def test_eight_bits_without_a_window_are_taken_as_they_are(tmp_path):
    stored = np.array([[100, 120], [110, 105]], np.uint8)
    rescaled = {"RescaleSlope": "1", "RescaleIntercept": "0"}
    for name, elements in {"plain": {}, "same": rescaled}.items():
        path = photograph(tmp_path / f"{name}.dcm", stored, photometric="MONOCHROME2", **elements)
        np.testing.assert_array_equal(read_image(path, channels=1).pixels[0], stored)
    other = photograph(
        tmp_path / "b.dcm", stored, photometric="MONOCHROME2", **rescaled | {"RescaleSlope": "2"}
    )
    assert read_image(other, channels=1).pixels.max() == 255  # in units of their own


def test_the_header_of_a_picture_knows_its_spacing(tmp_path):
    path = photograph(tmp_path / "a.dcm", PICTURE, PixelSpacing=[0.5, 0.25])  # 20 x 30 pixels
    header = read_header(path)
    assert header.spacing() == read_image(path).spacing == (0.5, 0.25)
    assert header.spacing((10, 15)) == read_image(path, size=(10, 15)).spacing == (1.0, 0.5)
    assert read_header(photograph(tmp_path / "b.dcm", PICTURE)).spacing((10, 15)) is None


def test_a_series_lies_where_another_library_puts_it(tmp_path):
    uid = series(tmp_path / "QUIXOTTE_ZELDA", VOLUME)
    source = found(tmp_path)
    image, header = read_image(source.path, channels=1), read_header(source.path)
    reference = highdicom.get_volume_from_series(
        [pydicom.dcmread(file) for file in (tmp_path / "QUIXOTTE_ZELDA").iterdir()]
    )

    assert source.case == uid
    assert (header.slices, *header.size) == image.spatial_shape
    np.testing.assert_allclose(header.affine, image.affine)
    spread = reference.array.astype(float) * 1.0
    low, high = np.percentile(spread, [0.5, 99.5])
    levels = np.rint(((spread - low) / (high - low)).clip(0, 1) * 255)
    to_ras = np.diag([-1, -1, 1, 1]) @ reference.affine  # from (slice, row, column)
    place = np.linalg.inv(image.affine) @ to_ras
    for index in np.ndindex(levels.shape):
        column, row, section, _ = np.rint(place @ [*index, 1]).astype(int)
        assert image.pixels[0, section, row, column] == levels[index]
    assert sorted(image.spacing) == pytest.approx([0.25, 0.5, 2.0])


def test_an_enhanced_object_is_a_volume(tmp_path):
    enhanced(tmp_path / "a.dcm", VOLUME)
    plain = tmp_path / "plain"
    series(
        plain,
        VOLUME,
        RescaleSlope="0.5",
        RescaleIntercept="-5",
        WindowCenter="60",
        WindowWidth="100",
    )
    one, other = (
        read_image(found(folder).path, channels=1) for folder in (tmp_path / "a.dcm", plain)
    )
    np.testing.assert_array_equal(one.pixels, other.pixels)
    np.testing.assert_allclose(one.affine, other.affine)


def test_slices_are_those_of_the_volume(tmp_path):
    series(tmp_path, VOLUME)
    path = found(tmp_path).path
    whole = read_image(path)
    for index in range(whole.pixels.shape[1]):
        one = read_image(path, slice_index=index)
        np.testing.assert_array_equal(one.pixels, whole.pixels[:, index])


def test_several_series_of_one_folder_are_told_apart(tmp_path):
    uids = {series(tmp_path / "x", VOLUME[:3]) for _ in range(1)}
    uids.add(series(tmp_path / "y", VOLUME[3:]))
    for file in (tmp_path / "y").iterdir():
        file.rename(tmp_path / "x" / f"other{file.name}")
    photograph(tmp_path / "x" / "photo", PICTURE)  # without a suffix: known by its content
    names = [source.case for source in find_images([tmp_path / "x"]).items]
    assert uids < set(names)
    assert len(names) == 3


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        (np.delete(positions(7), 3, axis=0), "slices are missing or unevenly spaced"),
        (np.array([*positions(5), positions(5)[2]]), "2 slices lie at the same place"),
        (positions(6) + np.eye(6)[:, :1] * [0, 0, 30.0], "slices are missing|do not lie on a line"),
    ],
)
def test_slices_that_are_no_volume_are_refused(tmp_path, places, problem):
    series(tmp_path, VOLUME, places=places)
    with pytest.raises(DataError, match=problem):
        read_image(found(tmp_path).path)


def test_mixed_orientations_are_refused(tmp_path):
    series(tmp_path, VOLUME)
    file = min(tmp_path.iterdir())
    dataset = pydicom.dcmread(file)
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    save(dataset, file)
    with pytest.raises(DataError, match="slices of several orientations"):
        read_image(found(tmp_path).path)


def no_pixels(dataset):
    del dataset.PixelData


def encrypted_attributes(dataset):
    no_pixels(dataset)
    dataset.EncryptedAttributesSequence = []


def odd_syntax(dataset):
    dataset.file_meta.TransferSyntaxUID = "1.2.3.4.5"


def odd_meaning(dataset):
    dataset.PhotometricInterpretation = "HSV"
    dataset.SamplesPerPixel = 1


def sigmoid(dataset):
    dataset.WindowCenter, dataset.WindowWidth, dataset.VOILUTFunction = 1, 2, "SIGMOID"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (no_pixels, "holds no pixels"),
        (encrypted_attributes, "its content is encrypted"),
        (odd_syntax, "unknown transfer syntax"),
        (odd_meaning, "photometric interpretation HSV is not supported"),
        (sigmoid, "its window is a sigmoid"),
        (lambda dataset: delattr(dataset, "Rows"), "Rows is missing"),
    ],
)
def test_files_are_refused_by_name(tmp_path, damage, problem):
    dataset = new_object("1.2.840.10008.5.1.4.1.1.7", modality="OT")
    set_pixels(dataset, VOLUME[0])
    damage(dataset)
    save(dataset, tmp_path / "a.dcm")
    with pytest.raises(DataError, match=rf"a\.dcm: .*{problem}"):
        read_image(tmp_path / "a.dcm")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b"\x30\x82" + bytes(500), "is encrypted"), (bytes(500), "is not DICOM")],
)
def test_content_that_is_no_dicom_is_refused(tmp_path, content, problem):
    (tmp_path / "a.dcm").write_bytes(content)
    with pytest.raises(DataError, match=problem):
        read_image(tmp_path / "a.dcm")


def test_names_tell_nothing_about_the_patient(tmp_path):
    series(tmp_path / "QUIXOTTE_ZELDA", VOLUME)
    photograph(tmp_path / "QUIXOTTE_ZELDA" / "quixotte.dcm", PICTURE)
    (tmp_path / "QUIXOTTE_ZELDA" / "broken_quixotte.dcm").write_bytes(bytes(200))

    sources = find_images([tmp_path]).items

    assert len(sources) == 3
    for source in sources:
        assert "quixotte" not in f"{source.case} {source.file}".lower()
        assert "quixotte" not in source.path.name.lower()
    named = find_images([tmp_path], identify=True).items
    assert {source.case for source in named} == {
        "QUIXOTTE_ZELDA",
        "QUIXOTTE_ZELDA/quixotte",
        "QUIXOTTE_ZELDA/broken_quixotte",
    }
    assert {
        read_image(source.path).spatial_shape for source in named if "broken" not in source.case
    } == {(20, 30), read_image(next(s for s in sources if "series" in s.file).path).spatial_shape}


BARE = "1.2.840.113619.2.5.77"
"""A file that is called by a UID, without a suffix."""


def test_pictures_without_a_suffix_keep_their_whole_name(tmp_path):
    photograph(tmp_path / "images" / BARE, PICTURE)
    photograph(tmp_path / "images" / "1.2.840.113619.2.5.78", 255 - PICTURE)
    (tmp_path / "masks").mkdir()
    mask = (PICTURE[..., 0] > 99).astype(np.uint8)
    PIL.Image.fromarray(mask).save(tmp_path / "masks" / f"{BARE}.png")
    named = find_images([tmp_path / "images"], identify=True).items
    assert [source.case for source in named] == [BARE, f"{BARE[:-1]}8"]
    paired = pair_folder(tmp_path / "images", tmp_path / "masks")
    assert paired.problems == ()
    assert [case.id for case in paired.cases] == [source.case for source in named]
    assert paired.cases[0].mask_path == tmp_path / "masks" / f"{BARE}.png"
    for path in (named[0].path, paired.cases[0].image_path):
        np.testing.assert_array_equal(read_image(path).pixels, PICTURE.transpose(2, 0, 1))
    # A name with and without the suffix are two images.
    photograph(tmp_path / "images" / f"{BARE}.dcm", PICTURE)
    both = find_images([tmp_path / "images"], identify=True).items
    assert len({source.case for source in both}) == len({source.path for source in both}) == 3


def test_a_path_with_an_added_suffix_is_found_again_by_another_process(tmp_path):
    photograph(tmp_path / "images" / BARE, PICTURE)
    assert files_of(tmp_path / "images" / f"{BARE}.dcm") == (tmp_path / "images" / BARE,)


def test_without_pydicom_a_picture_without_a_suffix_says_what_is_missing(tmp_path, monkeypatch):
    photograph(tmp_path / "images" / BARE, PICTURE)
    for module in ("images.dicom_files", "inference.sources", "data.dicom_names"):
        monkeypatch.setattr(f"segconf.{module}.is_available", lambda: False)
    (source,) = find_images([tmp_path / "images"]).items
    (case,) = pair_folder(tmp_path / "images", None).cases
    for path in (source.path, case.image_path):
        with pytest.raises(DataError, match="need pydicom"):
            read_image(path)


def test_copies_of_an_image_are_images_of_their_own(tmp_path):
    path = photograph(tmp_path / "a.dcm", PICTURE)
    dataset = pydicom.dcmread(path)
    dataset.PixelData = bytes(len(dataset.PixelData))
    save(dataset, tmp_path / "b.dcm")
    sources = find_images([tmp_path]).items
    assert len({source.case for source in sources}) == 2
    assert {int(read_image(source.path).pixels.max()) for source in sources} == {0, PICTURE.max()}


def test_masks_are_nifti_or_segmentation_objects(tmp_path):
    for name in ("one", "two"):
        series(tmp_path / "images" / name, VOLUME)
    header, image = {}, {}
    for case in group_files(tmp_path, list((tmp_path / "images").rglob("*.dcm"))):
        header[case.title.name], image[case.title.name] = (
            read_header(case.path),
            read_image(case.path),
        )
    mask = np.zeros(image["one"].spatial_shape, np.uint8)
    mask[1:3, 2:5, 3:7] = 1
    (tmp_path / "masks").mkdir()
    write_mask(tmp_path / "masks" / "one.nii.gz", mask, like=image["one"])
    write_segmentation(
        tmp_path / "images" / "two", image["two"], mask, tmp_path / "masks" / "two.dcm"
    )

    paired = pair_folder(tmp_path / "images", tmp_path / "masks")

    assert paired.problems == ()
    assert len(paired.cases) == 2 * header["one"].slices
    for case in paired.cases:
        name = case.id.partition("_z")[0]
        label = read_mask(case.mask_path, slice_index=case.slice_index, image=header[name])
        np.testing.assert_array_equal(label, mask[case.slice_index])


def write_segmentation(folder, image, mask, path):
    """A SEG of highdicom that leaves out empty slices."""
    files = sorted(
        (pydicom.dcmread(file) for file in folder.iterdir()),
        key=lambda one: one.ImagePositionPatient[1],
    )
    reference = highdicom.get_volume_from_series(files)
    place = np.linalg.inv(image.affine) @ np.diag([-1, -1, 1, 1]) @ reference.affine
    stored = np.zeros(reference.spatial_shape, np.uint8)
    for index in np.ndindex(stored.shape):
        column, row, section, _ = np.rint(place @ [*index, 1]).astype(int)
        stored[index] = mask[section, row, column]
    code = highdicom.sr.CodedConcept("52988006", "SCT", "Lesion")
    segment = highdicom.seg.SegmentDescription(
        segment_number=1,
        segment_label="lesion",
        segmented_property_category=code,
        segmented_property_type=code,
        algorithm_type="MANUAL",
    )
    made = highdicom.seg.Segmentation(
        source_images=files,
        pixel_array=reference.with_array(stored),
        segmentation_type="BINARY",
        segment_descriptions=[segment],
        series_instance_uid=generate_uid(),
        series_number=2,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="none",
        manufacturer_model_name="none",
        software_versions="1",
        device_serial_number="1",
    )
    made.save_as(path)


def test_without_pydicom_the_way_out_is_named(tmp_path):
    path = photograph(tmp_path / "a.dcm", PICTURE)
    code = (
        "import sys; sys.modules['pydicom'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pydicom' else real(name, *a)\n"
        "from segconf.images.io import read_image\n"
        f"read_image({str(path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'segconf[dicom]'" in done.stderr


def test_a_label_map_with_more_segments_than_a_mask_holds_is_refused(tmp_path, monkeypatch):
    place = tmp_path / "seg.dcm"
    labels = Segmentation(place, (2, 2), 1, (0,), None, None, None).labels
    frames = np.array([[0, 1], [255, 3]], np.uint16)
    monkeypatch.setattr("segconf.images.dicom_segmentation.decoded", lambda *_: frames)
    assert labels(None, None).tolist() == [[0, 1], [255, 3]]
    frames[1, 0] = 256  # 0 in eight bits
    with pytest.raises(DataError, match=r"seg\.dcm: a label map with the segment 256"):
        labels(None, None)
