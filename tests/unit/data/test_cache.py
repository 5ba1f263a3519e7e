"""Decoded pixels on disk: right, noticed when stale, never half-valid."""

import multiprocessing
import os
import time
import weakref
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from PIL import Image

from segconf.data.cache import PixelCache, cache_folder
from segconf.data.cases import BrokenDataError, Case
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.preprocessing import Preprocessing
from segconf.errors import DataError
from tests.conftest import disc, write_folder
from tests.dicom_objects import save, series

GRID = Preprocessing((32, 32))

LPS = np.diag([-1.0, -1.0, 1.0, 1.0])  # the order in which slices are read


def cases_of(root):
    return find_cases(str(root), options=FindOptions(0, 0)).training


def arrays(root):
    return sorted(PixelCache(root, GRID).folder.glob("*.npy"))


@pytest.fixture
def dataset(tmp_path):
    return write_folder(tmp_path / "set", 5)


def test_content_is_what_the_files_hold(dataset):
    cache = PixelCache(dataset, GRID)
    images = cache.images(cases_of(dataset), label="training")
    masks = cache.masks(cases_of(dataset), label="training")
    assert images.dtype == masks.dtype == np.uint8
    for number in range(5):
        image, mask = disc(number)
        np.testing.assert_array_equal(images[number], image)
        np.testing.assert_array_equal(masks[number], mask)


def test_arrays_are_memory_mapped_and_read_only(dataset):
    for _ in range(2):  # made, then opened
        images = PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
        assert isinstance(images, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            images[0] = 0


def test_an_array_is_mapped_no_more_when_it_gets_its_name(dataset, monkeypatch):
    """Windows refuses to rename a file that is."""
    made, alive = [], []
    create, rename = np.lib.format.open_memmap, Path.replace

    def creating(*given, **options):
        pixels = create(*given, **options)
        made.append(weakref.ref(pixels))
        return pixels

    def renaming(path, target):
        alive.extend(one() for one in made)
        return rename(path, target)

    monkeypatch.setattr(np.lib.format, "open_memmap", creating)
    monkeypatch.setattr(Path, "replace", renaming)
    PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    assert alive == [None]


def test_second_preparation_reads_no_image(dataset, monkeypatch):
    PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    monkeypatch.setattr("segconf.data.preprocessing.read_image", None)
    images = PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    np.testing.assert_array_equal(images[3], disc(3)[0])


def test_changed_added_and_removed_files_are_noticed(dataset):
    def read():
        return PixelCache(dataset, GRID).images(cases_of(dataset), label="training")

    read()
    changed, _ = disc(77)
    Image.fromarray(changed).save(dataset / "images/case_002.png")
    np.testing.assert_array_equal(read()[2], changed)
    write_folder(dataset, 1, first=5)
    assert len(read()) == 6
    (dataset / "images/case_000.png").unlink()
    np.testing.assert_array_equal(read()[0], disc(1)[0])


def test_a_changed_slice_of_a_series_is_noticed(tmp_path):
    volume = np.random.default_rng(0).integers(0, 2000, (4, 32, 32)).astype(np.int16)
    series(tmp_path / "images" / "case", volume)

    def read():
        return PixelCache(tmp_path, GRID).images(cases_of(tmp_path), label="training").copy()

    before = read()
    assert len(before) == len(cases_of(tmp_path)) > 1
    np.testing.assert_array_equal(read(), before)
    file = min((tmp_path / "images" / "case").iterdir())
    dataset = pydicom.dcmread(file)
    dataset.PixelData = bytes(len(dataset.PixelData))
    save(dataset, file)
    assert (read() != before).any()


def test_same_length_and_other_time_is_noticed(dataset):
    path = dataset / "images/case_000.png"
    before = PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    assert len(arrays(dataset)) == 1
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    assert len(arrays(dataset)) == 2
    np.testing.assert_array_equal(before[0], disc(0)[0])


def test_other_grids_do_not_mix(dataset):
    cases = cases_of(dataset)
    grey = PixelCache(dataset, Preprocessing((64, 32), channels=1)).images(cases, label="training")
    colour = PixelCache(dataset, GRID).images(cases, label="training")
    assert grey.shape == (5, 64, 32, 1)
    assert colour.shape == (5, 32, 32, 3)


def test_all_broken_files_are_reported_at_once(dataset):
    (dataset / "images/case_001.png").write_bytes(b"")
    (dataset / "images/case_003.png").write_text("no image")
    whole = (dataset / "images/case_004.png").read_bytes()
    (dataset / "images/case_004.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BrokenDataError) as caught:
        PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    assert [Path(problem.split(":")[0]).name for problem in caught.value.problems] == [
        "case_001.png",
        "case_003.png",
        "case_004.png",
    ]
    assert list(PixelCache(dataset, GRID).folder.iterdir()) == []


def test_mask_of_other_size_is_named(dataset):
    Image.new("L", (30, 32)).save(dataset / "masks/case_001.png")
    with pytest.raises(BrokenDataError, match=r"case_001\.png.*30"):
        PixelCache(dataset, GRID).masks(cases_of(dataset), label="training")


def test_interruption_leaves_nothing(dataset):
    def interrupt(_label, done, _total):
        if done == 3:
            raise KeyboardInterrupt

    cache = PixelCache(dataset, GRID, on_progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.images(cases_of(dataset), label="training")
    assert list(cache.folder.iterdir()) == []
    images = PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    np.testing.assert_array_equal(images[4], disc(4)[0])


def test_truncated_array_is_made_again(dataset):
    PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    (path,) = arrays(dataset)
    path.write_bytes(path.read_bytes()[:-100])
    images = PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    np.testing.assert_array_equal(images[4], disc(4)[0])


def _prepare(root, results):
    images = PixelCache(root, GRID).images(cases_of(root), label="training")
    results.put(int(images.astype(np.int64).sum()))


def test_two_processes_at_once(dataset):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_prepare, args=(dataset, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    sums = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert sums == [sum(int(disc(n)[0].astype(np.int64).sum()) for n in range(5))] * 2
    assert len(arrays(dataset)) == 1


def test_leftovers_of_killed_preparations_are_removed(dataset):
    folder = PixelCache(dataset, GRID).folder
    folder.mkdir(parents=True)
    old, young = folder / ".a.npy.1.part", folder / ".b.npy.2.part"
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    PixelCache(dataset, GRID).images(cases_of(dataset), label="training")
    assert not old.exists()
    assert young.exists()


def test_slices_of_a_volume_are_read_with_one_pass(tmp_path, monkeypatch):
    root = tmp_path / "volumes"
    (root / "images").mkdir(parents=True)
    volume = np.random.default_rng(0).integers(0, 256, (32, 32, 4)).astype(np.uint8)
    nibabel.save(nibabel.Nifti1Image(volume, LPS), root / "images/scan.nii.gz")
    grid = Preprocessing((32, 32), channels=1, intensity_window=(0.0, 255.0))
    import segconf.data.preprocessing as module

    calls = []
    original = module.read_image
    monkeypatch.setattr(module, "read_image", lambda *a, **k: calls.append(a) or original(*a, **k))
    images = PixelCache(root, grid).images(cases_of(root), label="training")
    assert len(calls) == 1
    for index in range(4):
        np.testing.assert_array_equal(images[index, :, :, 0], volume[:, :, index].T)


def test_progress_counts_every_case(dataset):
    seen = []
    cache = PixelCache(dataset, GRID, on_progress=lambda *state: seen.append(state))
    cache.images(cases_of(dataset), label="training")
    assert seen == [("training images", done, 5) for done in range(1, 6)]


def test_cache_lies_beside_the_data_or_where_asked(dataset, monkeypatch, tmp_path):
    monkeypatch.setenv("SEGCONF_CACHE", str(tmp_path / "elsewhere"))
    assert cache_folder(dataset).parent == tmp_path / "elsewhere"
    monkeypatch.delenv("SEGCONF_CACHE")
    assert cache_folder(dataset) == dataset / ".segconf-cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    dataset.chmod(0o555)
    assert cache_folder(dataset).parent == tmp_path / "user/segconf"
    dataset.chmod(0o755)


def test_cache_that_cannot_be_written(dataset, monkeypatch, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("x")
    monkeypatch.setenv("SEGCONF_CACHE", str(blocker))
    with pytest.raises(DataError, match="SEGCONF_CACHE"):
        PixelCache(dataset, GRID).images(cases_of(dataset), label="training")


def test_slices_of_one_volume_can_have_masks_of_different_files(tmp_path):
    """A slice accepted in review has a mask file of its own, beside the volume of true masks."""
    volume = np.random.default_rng(0).integers(0, 256, (32, 32, 4)).astype(np.uint8)
    image = tmp_path / "scan.nii.gz"
    nibabel.save(nibabel.Nifti1Image(volume, LPS), image)
    files = {}
    for name, seed in (("true", 1), ("accepted", 2)):
        labels = np.random.default_rng(seed).integers(0, 2, (32, 32, 4)).astype(np.uint8)
        files[name] = tmp_path / f"{name}.nii.gz"
        nibabel.save(nibabel.Nifti1Image(labels, LPS), files[name])
    kinds = ["true", "accepted", "accepted", "true"]
    cases = [Case(f"z{index}", image, files[kind], index) for index, kind in enumerate(kinds)]
    masks = PixelCache(tmp_path, Preprocessing((32, 32), channels=1)).masks(cases, label="training")
    for index, kind in enumerate(kinds):
        expected = np.asarray(nibabel.load(files[kind]).dataobj)[:, :, index].T
        np.testing.assert_array_equal(masks[index], expected)
