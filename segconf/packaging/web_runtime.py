"""ONNX Runtime Web: where its files come from, and whether they are the right ones.

It is no part of segconf. The npm package is given, or lies in the cache, or is fetched by the
ordinary client.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from segconf.errors import ConfigError
from segconf.files import described, read_bytes, write_bytes

VERSION = "1.30.0"
PACKAGE = f"onnxruntime-web@{VERSION}"
ARCHIVE = f"onnxruntime-web-{VERSION}.tgz"
FILES = {
    "code": "ort.wasm.bundle.min.mjs",
    "wasm": "ort-wasm-simd-threaded.wasm",
    "gpu_code": "ort.bundle.min.mjs",
    "gpu_wasm": "ort-wasm-simd-threaded.jsep.wasm",
}
"""Of its folder `dist`: the runtime for the processor, and that for the graphics card."""
SHA256 = {
    "code": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    "gpu_code": "d5fd02577ab51ec31243809e146c81600cd614786a7f9bf848ea8efbfc07af1c",
    "gpu_wasm": "3ad23231b5bd6d9dda55a7f84606315e0bf35b6750c28ee993c987c54cacab0f",
}
WAY_OUT = (
    f"Get it with `npm pack {PACKAGE}` on a computer with npm, then run the same command with "
    f"`--runtime {ARCHIVE}`."
)
_SECONDS = 600
_MOST_BYTES = 64_000_000

Runtime = dict[str, bytes]
"""Contents of the files by what they are; see `FILES`."""


def find_runtime(given: Path | None = None) -> Runtime:
    """The files of the runtime, checked.

    Args:
        given: the npm package as an archive, or its unpacked folder; when not given, that in the
            cache, else that which `npm pack` fetches.

    Raises:
        ConfigError: there is none, or it is not the expected version.
    """
    if given is not None:
        return _read(given)
    kept = cache_file()
    if kept.is_file():
        return _read(kept)
    with tempfile.TemporaryDirectory() as folder:
        archive = _fetch(Path(folder))
        found = _read(archive)
        write_bytes(kept, read_bytes(archive))
    return found


def cache_file() -> Path:
    """Where the package is kept: below SEGCONF_CACHE when that is set, else the user's cache."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SEGCONF_CACHE") or Path(user) / "segconf") / ARCHIVE


def _fetch(folder: Path) -> Path:
    """Let npm get the package."""
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigError(f"the page needs {PACKAGE}, and npm is not installed. {WAY_OUT}")
    command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"the page needs {PACKAGE}, and npm failed ({error}). {WAY_OUT}"
        ) from None
    if done.returncode or not (folder / ARCHIVE).is_file():
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(f"the page needs {PACKAGE}, and npm did not get it ({reason}). {WAY_OUT}")
    return folder / ARCHIVE


def _read(path: Path) -> Runtime:
    """The files of a package, as an archive or a folder."""
    make = _from_folder if path.is_dir() else _from_archive
    try:
        found = {name: make(path, f"dist/{file}") for name, file in FILES.items()}
    except (OSError, ValueError, KeyError, EOFError, tarfile.TarError) as error:
        raise ConfigError(
            f"runtime = {path}: not the npm package {PACKAGE} ({described(error)}). {WAY_OUT}"
        ) from None
    for name, content in found.items():
        if hashlib.sha256(content).hexdigest() != SHA256[name]:
            raise ConfigError(
                f"runtime = {path}: {FILES[name]} is not that of {PACKAGE} (its SHA-256 differs). "
                f"{WAY_OUT}"
            )
    return found


def _from_folder(path: Path, name: str) -> bytes:
    return read_bytes(path / name)


def _from_archive(path: Path, name: str) -> bytes:
    with tarfile.open(path, "r:gz") as archive:
        member = archive.extractfile(f"package/{name}")
        if member is None:
            raise ValueError(f"{name} is no file")
        return member.read(_MOST_BYTES)
