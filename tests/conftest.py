"""Tiny data sets on disk: bright discs on noise, exact masks."""

import os

# Tests run side by side: one thread each, also in the processes that they start. Libraries read it
# when they are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# With one of these, typer takes every output for a terminal: help in colours, cut by escape codes.
os.environ.pop("GITHUB_ACTIONS", None)
os.environ.pop("FORCE_COLOR", None)
os.environ.pop("PY_COLORS", None)

import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segconf_cli import display, main
from tests.archive_server import Server

SIZE = (32, 32)
SHARED = Path(__file__).resolve().parents[2] / "shared"


def disc(seed, size=SIZE):
    """A bright disc on noise (H, W, 3) and its mask (H, W)."""
    generator = np.random.default_rng(seed)
    height, width = size
    row, column = generator.uniform(0.35, 0.65, 2) * size
    radius = generator.uniform(0.15, 0.35) * min(size)
    rows, columns = np.mgrid[:height, :width]
    mask = (rows - row) ** 2 + (columns - column) ** 2 <= radius**2
    noise = generator.normal(0, 20, (height, width, 3))
    return np.clip(90 + 80 * mask[..., None] + noise, 0, 255).astype(np.uint8), mask


def write_folder(root, count, *, masks=None, first=0, size=SIZE):
    """`images/` and `masks/` of `count` discs; only the first `masks` have a mask."""
    (root / "images").mkdir(parents=True, exist_ok=True)
    (root / "masks").mkdir(exist_ok=True)
    for number in range(first, first + count):
        image, mask = disc(number, size)
        Image.fromarray(image).save(root / "images" / f"case_{number:03d}.png")
        if masks is None or number - first < masks:
            picture = Image.fromarray(mask.astype(np.uint8) * 255)
            picture.save(root / "masks" / f"case_{number:03d}.png")
    return root


COLOURS = ("blue", "green", "red")


def coloured(seed, name, size=8):
    """Noise (H, W, 3) in which the channel of a colour is brighter than the others."""
    noise = np.random.default_rng(seed).normal(100, 30, (size, size, 3))
    noise[..., {"red": 0, "green": 1, "blue": 2}[name]] += 60
    return np.clip(noise, 0, 255).astype(np.uint8)


def write_classes(root, counts, *, names=COLOURS, size=8):
    """A folder of classes: so many images of every colour in each part, such as `train`."""
    for part, count in counts.items():
        for place, name in enumerate(names):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                seed = [len(part), place, number]
                Image.fromarray(coloured(seed, name, size)).save(folder / f"{number:03d}.png")
    return root


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """No test reads what another one, or a user, has prepared."""
    monkeypatch.setenv("SEGCONF_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("SEGCONF_DATA", raising=False)


@pytest.fixture
def folder_dataset(tmp_path):
    """Eight labeled training discs, four validation and two test discs."""
    root = write_folder(tmp_path / "discs", 8)
    write_folder(root / "val", 4, first=100)
    write_folder(root / "test", 2, first=200)
    return root


@pytest.fixture
def shared():
    """Path of real data or weights, such as `data/isic2017`; without it the test is skipped."""

    def find(name):
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"{path}: these real files are not at hand")
        return path

    return find


@pytest.fixture
def server(monkeypatch):
    """A running archive server; proxies of the environment are out of the way."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("segconf.data.download.NETWORK_BLOCK", 4096)
    monkeypatch.setattr("segconf.data.download.TIMEOUT", 5.0)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def segconf(monkeypatch, capfd, tmp_path):
    """The command in this process: its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        display.messages.cache_clear()
        display.results.cache_clear()
        monkeypatch.setattr(sys, "argv", ["segconf", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    yield run
    display.messages.cache_clear()
    display.results.cache_clear()
