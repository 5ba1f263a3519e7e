"""NumPy files: damage and false claims are found before memory is taken."""

import io
import zipfile

import numpy as np
import pytest

from segconf.arrays import read_array, read_arrays


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def claiming(shape, dtype="<f4", content=b""):
    """A file whose header claims a shape that it does not hold."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue() + content


def test_arrays_are_read_back(tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", a=array, b=np.array(["ä", "b"]), c=np.float64(2))
    for mapped in (False, True):
        np.testing.assert_array_equal(read_array(tmp_path / "a.npy", mapped=mapped), array)
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == ["a", "b", "c"]
    np.testing.assert_array_equal(found["a"], array)
    assert found["b"].tolist() == ["ä", "b"]
    assert list(read_arrays(tmp_path / "a.npz", ["b", "missing"])) == ["b"]


DAMAGED = {
    "empty": b"",
    "text": b"not an array",
    "truncated": npy(np.arange(100))[:-1],
    "longer": npy(np.arange(100)) + b"x",
    "header only": claiming((4,)),
    "terabytes": claiming((1_000_000, 1_000_000)),
    "negative": claiming((-1,)),
    "header": npy(np.arange(3)).replace(b"descr", b"dexcr"),
    "code": npy(np.arange(3)).replace(b"'<i8'", b"1/0  "),
    "open bracket": npy(np.arange(3)).replace(b"(3,)", b"(3,("),
    "objects": npy(np.array([{}, None], dtype=object)),
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_damaged_array_is_refused(tmp_path, name, mapped):
    (tmp_path / "a.npy").write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match="not a whole array"):
        read_array(tmp_path / "a.npy", mapped=mapped)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_member_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", DAMAGED[name])
    with pytest.raises(ValueError, match="not a whole file of arrays"):
        read_arrays(tmp_path / "a.npz")


def test_every_damaged_byte_of_an_archive_is_noticed_or_harmless(tmp_path):
    array = np.arange(20, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", a=array)
    whole = (tmp_path / "a.npz").read_bytes()
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        (tmp_path / "b.npz").write_bytes(damaged)
        try:
            found = read_arrays(tmp_path / "b.npz", ["a"])
        except ValueError:
            continue
        assert all(np.array_equal(values, array) for values in found.values())


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy(np.zeros(1_000_000, np.uint8)))
    assert (tmp_path / "a.npz").stat().st_size < 10_000
    with pytest.raises(ValueError, match="claims an array of"):
        read_arrays(tmp_path / "a.npz", limit=999_999)
    assert read_arrays(tmp_path / "a.npz", limit=1_000_000)["a"].sum() == 0


def test_what_is_no_file_is_an_os_error(tmp_path):
    for path in (tmp_path, tmp_path / "missing.npy"):
        for read in (read_array, read_arrays):
            with pytest.raises(OSError, match=r"."):
                read(path)
