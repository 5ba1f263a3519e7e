"""CIFAR in its binary files: records written by hand, downloads from a local server, damage."""

import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest

from segconf.config.schema import DataConfig
from segconf.data.archives import Archive
from segconf.data.cache import PixelCache
from segconf.data.datasets.dataset import FindOptions, datasets, find_cases
from segconf.data.download import download_archives
from segconf.data.preprocessing import Preprocessing
from segconf.data.tar_archives import extract_tar
from segconf.errors import DataError
from tests.archive_server import Reply
from tests.cifar_records import NAMES, files_of, record, write

GRID = Preprocessing((32, 32), task="classification", classes=3)


@pytest.mark.parametrize("version", [10, 100])
def test_records_become_images_and_labels(tmp_path, version):
    files, images, labels = files_of(version)
    write(tmp_path, files)
    found = find_cases(f"cifar{version}", tmp_path, options=FindOptions(0, 0))
    assert (found.class_names, found.size) == (NAMES, (32, 32))
    cases = (*found.training, *found.test)
    assert {case.id: NAMES[case.label] for case in cases} == labels
    assert {case.id.split("/")[0] for case in found.test} <= {"test", "test_batch"}
    pixels = PixelCache(tmp_path, GRID).images(cases, label="all")
    for case, image in zip(cases, pixels, strict=True):
        np.testing.assert_array_equal(image, images[case.id])
    small = Preprocessing((16, 16), task="classification")
    assert PixelCache(tmp_path, small).images(cases, label="all").shape == (len(cases), 16, 16, 3)


def test_the_official_archives():
    ten, hundred = (datasets.get(name).archives[0] for name in ("cifar10", "cifar100"))
    assert ten.url == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert ten.md5 == "c32a1d4ab5d03f1284b67883e8d87530"
    assert hundred.url == "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
    assert hundred.md5 == "03b5dce01913d631647c71ecec9e9cb8"


def tar_of(entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as bundle:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                bundle.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content[0], "/etc/passwd"
                bundle.addfile(info)
    return buffer.getvalue()


def archive_at(server, body):
    url = f"http://127.0.0.1:{server.server_address[1]}/cifar-10-binary.tar.gz"
    official = datasets.get("cifar10").archives[0]
    md5 = hashlib.md5(body).hexdigest()  # noqa: S324 - it finds damage
    return Archive(official.name, url, md5, len(body), official.page, official.suffix)


def test_download_checks_and_unpacks(tmp_path, server):
    files, _, labels = files_of(10)
    body = tar_of(files)
    server.replies = [Reply(body=body)]
    (made,) = download_archives(tmp_path / "new", archives=[archive_at(server, body)])
    assert made == tmp_path / "new/cifar-10-batches-bin"
    assert {f"{made.name}/{path.name}": path.read_bytes() for path in made.iterdir()} == files
    assert not list((tmp_path / "new").glob("*.tar.gz*"))
    found = find_cases("cifar10", tmp_path / "new", options=FindOptions(0, 0))
    assert len(found.training) + len(found.test) == len(labels)


def test_wrong_bytes_are_not_unpacked(tmp_path, server):
    body = tar_of(files_of(10)[0])
    archive = archive_at(server, body)
    server.replies = [Reply(body=body[:-1] + b"x", etag=None)] * 2
    with pytest.raises(DataError, match=r"wrong bytes, twice"):
        download_archives(tmp_path, archives=[archive], sleep=lambda _: None)
    assert not (tmp_path / archive.name).exists()


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"top/../../evil": b"x"}, "is not in the folder top"),
        ({"/top/a": b"x"}, "is not in the folder top"),
        ({"other/a": b"x"}, "is not in the folder top"),
        ({"top/a": [tarfile.SYMTYPE]}, "is a link or a device"),
        ({"top/a": [tarfile.LNKTYPE], "top/b": b"x"}, "is a link or a device"),
        ({"top/a": [tarfile.FIFOTYPE]}, "is a link or a device"),
        ({}, "holds no files"),
    ],
)
def test_unsafe_entries_are_refused_before_anything_is_written(tmp_path, entries, problem):
    path = tmp_path / "top.tar.gz"
    path.write_bytes(tar_of(entries))
    with pytest.raises(DataError, match=problem):
        extract_tar(path, tmp_path / "top")
    assert [one.name for one in tmp_path.iterdir()] == ["top.tar.gz"]


def test_a_damaged_archive(tmp_path):
    path = tmp_path / "top.tar.gz"
    whole = tar_of({"top/a": np.random.default_rng(0).bytes(5000)})
    for content in (whole[:-2000], gzip.compress(b"no tar"), b"nothing"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"top\.tar\.gz: .*(damaged|cannot be read|no files)"):
            extract_tar(path, tmp_path / "top")
        assert [one.name for one in tmp_path.iterdir()] == ["top.tar.gz"]


def test_every_damaged_file_is_named_at_once(tmp_path):
    files, _, _ = files_of(10)
    write(tmp_path, files)
    folder = tmp_path / "cifar-10-batches-bin"
    (folder / "data_batch_2.bin").write_bytes(b"short")
    (folder / "data_batch_3.bin").unlink()
    (folder / "data_batch_4.bin").write_bytes(record([9], 0)[0])
    text = "\n".join(find_cases("cifar10", tmp_path).problems)
    assert "data_batch_2.bin: 5 bytes are no whole number of records of 3073" in text
    assert "data_batch_3.bin: cannot be read" in text
    assert "data_batch_4.bin: record 0: the label 9 is no class" in text


def test_a_folder_without_cifar_says_how_to_get_it(tmp_path):
    with pytest.raises(DataError, match=f"segconf data cifar100 --download --data {tmp_path}"):
        find_cases("cifar100", tmp_path)


def test_it_is_for_classification_only(tmp_path):
    wanted = FindOptions.of(DataConfig(task="segmentation"))
    with pytest.raises(DataError, match="cifar10 is for classification only"):
        find_cases("cifar10", tmp_path, options=wanted)
