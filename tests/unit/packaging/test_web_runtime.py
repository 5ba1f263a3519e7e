"""ONNX Runtime Web comes from a given package, the cache or npm, and is checked."""

import hashlib
import io
import shutil
import subprocess
import tarfile

import pytest

from segconf.errors import ConfigError
from segconf.packaging import web_runtime
from segconf.packaging.web_runtime import ARCHIVE, FILES, cache_file, find_runtime

CONTENT = {name: f"content of {file}".encode() for name, file in FILES.items()}


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    monkeypatch.setattr(web_runtime, "SHA256", hashes)


def write_archive(path, contents=CONTENT):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"package/dist/{FILES[name]}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_an_archive_or_its_folder_is_taken(tmp_path):
    archive = write_archive(tmp_path / "given.tgz")
    assert find_runtime(archive) == CONTENT
    shutil.unpack_archive(archive, tmp_path, "gztar")
    assert find_runtime(tmp_path / "package") == CONTENT


@pytest.mark.parametrize("broken", [b"", b"not an archive"])
def test_what_is_no_package_is_refused(tmp_path, broken):
    (tmp_path / "given.tgz").write_bytes(broken)
    for path in (tmp_path / "given.tgz", tmp_path, tmp_path / "absent.tgz"):
        with pytest.raises(ConfigError, match=rf"not the npm package.*--runtime {ARCHIVE}"):
            find_runtime(path)


def test_another_content_is_refused(tmp_path):
    archive = write_archive(tmp_path / "given.tgz", CONTENT | {"wasm": b"something else"})
    with pytest.raises(ConfigError, match=r"ort-wasm-simd-threaded\.wasm is not that of"):
        find_runtime(archive)


def test_npm_gets_it_once(monkeypatch):
    calls = []

    def pack(command, **_):
        calls.append(command)
        write_archive(web_runtime.Path(command[-1]) / ARCHIVE)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(web_runtime.shutil, "which", lambda _: "/usr/bin/npm")
    monkeypatch.setattr(web_runtime.subprocess, "run", pack)
    assert find_runtime() == CONTENT
    assert cache_file().is_file()
    assert find_runtime() == CONTENT
    assert len(calls) == 1
    assert calls[0][1:3] == ["pack", web_runtime.PACKAGE]


def test_without_npm_or_network_the_two_commands_are_named(monkeypatch):
    words = rf"npm pack {web_runtime.PACKAGE}.*--runtime {ARCHIVE}"
    monkeypatch.setattr(web_runtime.shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match=f"npm is not installed.*{words}"):
        find_runtime()
    failed = subprocess.CompletedProcess([], 1, "", "first line\nno network\n")
    monkeypatch.setattr(web_runtime.shutil, "which", lambda _: "/usr/bin/npm")
    monkeypatch.setattr(web_runtime.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ConfigError, match=rf"did not get it \(no network\).*{words}"):
        find_runtime()
    assert not cache_file().exists()
