"""DICOM objects of a prediction: valid, in the place of their source, and kept by a PACS."""

import io
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import highdicom
import nibabel
import numpy as np
import PIL.Image
import pydicom
import pytest

from segconf.config.segments import SKIN_LESION, read_codes
from segconf.errors import ConfigError, DataError
from segconf.inference.model import load_model
from segconf.inference.pipeline import PredictOptions
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.packaging.dicom_results import _Frames, check_sources, unwritten, write_dicom
from segconf.results.prediction_folder import PredictionFolder
from tests.dicom_objects import enhanced, photograph, series
from tests.ports import free_ports
from tests.tiny_models import write_checkpoint, write_picture

RNG = np.random.default_rng(0)
CASES = {}
"""Names of the cases by their files."""
DICOMWEB = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
CODES = {
    "segments": [
        {
            "label": name,
            "category": {"value": "123037004", "meaning": "Anatomical Structure"},
            "type": {"value": value, "meaning": name},
        }
        for name, value in (("Liver", "10200004"), ("Spleen", "78961009"))
    ]
}


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """Predictions of a CT series, an enhanced MR object and a photograph, and their objects."""
    root = tmp_path_factory.mktemp("dicom")
    volume = RNG.integers(0, 2000, (5, 36, 48)).astype(np.int16)
    enhanced(root / "in" / "mr.dcm", volume[:4])
    photograph(root / "in" / "photo.dcm", RNG.integers(0, 256, (40, 56, 3), np.uint8))
    CASES["ct"] = series(root / "in" / "ct", volume, WindowCenter="800", WindowWidth="1500")
    for name in ("mr", "photo"):
        CASES[name] = pydicom.dcmread(root / "in" / f"{name}.dcm").SOPInstanceUID
    (root / "codes.json").write_text(json.dumps(CODES))
    model = load_model(write_checkpoint(root / "w.safetensors", classes=3), device="cpu")
    sources = find_images([root / "in"])
    check_sources(sources)
    report = predict(model, sources, root / "maps", options=PredictOptions(save_probabilities=True))
    folder = PredictionFolder(root / "maps")
    codes = read_codes(root / "codes.json", 3)
    written = write_dicom(folder, report.rows, segments=codes)
    assert written.problems == ()
    assert written.objects == 5 + 5 + 4  # no parametric map of a photograph
    assert list(unwritten(folder, sources, [])) == []
    return folder


def every_object(maps):
    return sorted((maps.path / "dicom").rglob("*.dcm"))


@needs("dciodvfy")
def test_every_object_is_valid(maps):
    for path in every_object(maps):
        done = subprocess.run(
            [shutil.which("dciodvfy"), path], capture_output=True, text=True, check=False
        )
        errors = [line for line in done.stderr.splitlines() if line.startswith("Error")]
        assert errors == [], path


@needs("dcmdump")
def test_dcmtk_reads_every_object(maps):
    for path in every_object(maps):
        subprocess.run([shutil.which("dcmdump"), "-q", path], capture_output=True, check=True)


def test_objects_say_what_they_are(maps):
    sha = maps.record().values["model"]["sha256"]
    for path in every_object(maps):
        dataset = pydicom.dcmread(path)
        assert "research use only" in dataset.SeriesDescription
        assert dataset.PatientName == "Quixotte^Zelda"
        assert sha in list(dataset.SoftwareVersions)
        if path.name == "overlay.dcm":
            assert dataset.BurnedInAnnotation == "YES"
    folder = maps.path / "dicom" / CASES["ct"]
    segments = pydicom.dcmread(folder / "mask.dcm").SegmentSequence
    assert [one.SegmentedPropertyTypeCodeSequence[0].CodeMeaning for one in segments] == [
        "Liver",
        "Spleen",
    ]
    algorithm = segments[0].SegmentationAlgorithmIdentificationSequence[0]
    assert sha in algorithm.AlgorithmParameters
    source = [pydicom.dcmread(file) for file in (maps.path.parent / "in" / "ct").iterdir()]
    assert pydicom.dcmread(folder / "mask.dcm").StudyInstanceUID == source[0].StudyInstanceUID


@pytest.mark.parametrize("name", ["ct", "mr"])
def test_a_seg_lies_voxel_for_voxel_where_the_nifti_lies(maps, name):
    case, folder = CASES[name], maps.path / "dicom" / CASES[name]
    nifti = nibabel.load(maps.path / "masks" / f"{case}.nii.gz")
    expected = np.asarray(nifti.dataobj)
    assert len(np.unique(expected)) > 1
    seg = highdicom.seg.segread(folder / "mask.dcm")
    volume = seg.get_volume(combine_segments=True)
    to_nifti = np.linalg.inv(nifti.affine) @ np.diag([-1, -1, 1, 1]) @ volume.affine
    seen = 0
    for index in np.ndindex(volume.spatial_shape):
        place = to_nifti @ [*index, 1]
        nearest = np.rint(place).astype(int)
        np.testing.assert_allclose(place, nearest, atol=1e-3)
        assert volume.array[index] == expected[tuple(nearest[:3])]
        seen += int(expected[tuple(nearest[:3])] > 0)
    assert seen == np.count_nonzero(expected)  # slices that are left out are empty


def test_fractions_are_the_maps(maps):
    case, folder = CASES["ct"], maps.path / "dicom" / CASES["ct"]
    confidence = np.asarray(nibabel.load(maps.path / "confidence" / f"{case}.nii.gz").dataobj)
    seg = highdicom.seg.segread(folder / "confidence.dcm").get_volume()
    nifti = nibabel.load(maps.path / "confidence" / f"{case}.nii.gz")
    to_nifti = np.linalg.inv(nifti.affine) @ np.diag([-1, -1, 1, 1]) @ seg.affine
    mapped = pydicom.dcmread(folder / "confidence_map.dcm")
    floats = np.frombuffer(mapped.FloatPixelData, np.float32).reshape(
        mapped.NumberOfFrames, mapped.Rows, mapped.Columns
    )
    for index in np.ndindex(seg.spatial_shape):
        expected = confidence[tuple(np.rint(to_nifti @ [*index, 1]).astype(int)[:3])]
        assert abs(seg.array[index].item() - expected) <= 0.51 / 255
    assert sorted(floats.ravel()) == pytest.approx(sorted(confidence.ravel()), abs=1e-6)


def test_a_photograph_has_its_maps_in_place(maps):
    case, folder = CASES["photo"], maps.path / "dicom" / CASES["photo"]
    mask = np.asarray(PIL.Image.open(maps.path / "masks" / f"{case}.png"))
    seg = pydicom.dcmread(folder / "mask.dcm")
    frames = seg.pixel_array.reshape(-1, *mask.shape)
    numbers = [
        group.SegmentIdentificationSequence[0].ReferencedSegmentNumber
        for group in seg.PerFrameFunctionalGroupsSequence
    ]
    for number, frame in zip(numbers, frames, strict=True):
        np.testing.assert_array_equal(frame, mask == number)
    assert set(numbers) >= set(np.unique(mask)) - {0}
    picture = np.asarray(PIL.Image.open(maps.overlay(case)).convert("RGB"))
    np.testing.assert_array_equal(pydicom.dcmread(folder / "overlay.dcm").pixel_array, picture)


def test_codes_are_one_per_class(tmp_path):
    (tmp_path / "codes.json").write_text(json.dumps(CODES))
    assert [code.label for code in read_codes(tmp_path / "codes.json", 3)] == ["Liver", "Spleen"]
    with pytest.raises(ConfigError, match="2 segments, but the network has 1 classes"):
        read_codes(tmp_path / "codes.json", 2)
    assert SKIN_LESION.type.value == "95324001"


def test_files_of_any_name_have_objects_where_they_are_called_by_it(tmp_path):
    for name in ("IM0001", "X.DCM"):
        photograph(tmp_path / "in" / name, RNG.integers(0, 256, (40, 56, 3), np.uint8))
    model = load_model(write_checkpoint(tmp_path / "w.safetensors"), device="cpu")
    sources = find_images([tmp_path / "in"], identify=True)
    check_sources(sources)
    options = PredictOptions(save_probabilities=True)
    report = predict(model, sources, tmp_path / "maps", options=options)
    written = write_dicom(PredictionFolder(tmp_path / "maps"), report.rows)
    assert (written.objects, written.problems) == (8, ())
    assert sorted(report.cases) == ["IM0001", "X"]


def test_codes_are_read_before_anything_is_predicted(segconf, tmp_path):
    photograph(tmp_path / "in" / "a.dcm", RNG.integers(0, 256, (40, 56, 3), np.uint8))
    write_checkpoint(tmp_path / "w.safetensors")
    (tmp_path / "codes.json").write_text(json.dumps(CODES))  # of two classes beside the background
    command = ("predict", "in", "--out", "maps", "--checkpoint", "w.safetensors")
    for options, words in (
        (("--dicom", "--segments", "codes.json"), "2 segments, but the network has 1 classes"),
        (("--segments", "codes.json"), "--segments: codes are for DICOM objects. Add --dicom"),
    ):
        code, _, said = segconf(*command, *options)
        assert (code, words in said) == (2, True)
        assert not (tmp_path / "maps").exists()


def test_other_images_are_refused_before_anything_is_predicted(tmp_path):
    write_picture(tmp_path / "a.png", RNG.integers(0, 256, (40, 40, 3), np.uint8))
    with pytest.raises(ConfigError, match=r"a\.png: is no DICOM image"):
        check_sources(find_images([tmp_path]))


@needs("Orthanc")
@needs("storescu")
def test_a_pacs_keeps_every_object_unchanged(maps, tmp_path):
    http, dicom = free_ports(2)
    settings = {
        "HttpPort": http,
        "DicomPort": dicom,
        "RemoteAccessAllowed": False,
        "AuthenticationEnabled": False,
        "StorageDirectory": str(tmp_path / "storage"),
        "IndexDirectory": str(tmp_path / "storage"),
        "Plugins": [str(DICOMWEB)] if DICOMWEB.is_file() else [],
        "DicomCheckCalledAet": False,
        "DicomAlwaysAllowStore": True,
    }
    (tmp_path / "orthanc.json").write_text(json.dumps(settings))
    server = subprocess.Popen(
        [shutil.which("Orthanc"), str(tmp_path / "orthanc.json")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(f"http://127.0.0.1:{http}/system")
        files = [str(path) for path in every_object(maps)]
        subprocess.run(
            [shutil.which("storescu"), "-R", "127.0.0.1", str(dicom), *files],
            check=True,
            capture_output=True,
        )
        for path in files:
            sent = pydicom.dcmread(path)
            kept = pydicom.dcmread(io.BytesIO(retrieved(f"http://127.0.0.1:{http}", sent)))
            assert kept == sent
    finally:
        server.terminate()
        server.wait(timeout=30)


def retrieved(server, sent):
    """An object by DICOMweb, or by the server's own interface where it has no DICOMweb."""
    if not DICOMWEB.is_file():
        (answer,) = json.loads(ask(f"{server}/tools/lookup", sent.SOPInstanceUID.encode()))
        return ask(f"{server}{answer['Path']}/file")
    place = f"studies/{sent.StudyInstanceUID}/series/{sent.SeriesInstanceUID}"
    answer = ask(f"{server}/dicom-web/{place}/instances/{sent.SOPInstanceUID}")
    boundary, rest = answer.split(b"\r\n", 1)
    return rest.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n" + boundary, 1)[0]


def ask(url, content=None):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, data=content, timeout=30) as answer:
        return answer.read()


def wait_for(url):
    for _ in range(100):
        try:
            ask(url)
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.3)
        else:
            return
    raise TimeoutError(url)


def test_a_map_of_another_grid_is_refused(maps):
    source = next(
        s for s in find_images([maps.path.parent / "in"]).items if CASES["ct"] in str(s.path)
    )
    frames = _Frames.of(source.path)
    assert frames.stored(np.zeros((5, 36, 48), np.uint8)).shape == (5, 36, 48)
    with pytest.raises(DataError, match=r"its map is \(36, 5, 48\)"):  # as many values
        frames.stored(np.zeros((36, 5, 48), np.uint8))
