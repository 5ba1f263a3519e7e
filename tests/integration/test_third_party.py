"""A method, a data set and an image format of another package, used without touching segconf."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import disc

ROOT = Path(__file__).resolve().parents[2]
MODULE = '''
"""Sharp masks, discs in a folder of their own, and pictures of plain bytes."""

import os
from pathlib import Path

import numpy as np

from segconf.data.cases import CaseSet, pair_folder
from segconf.data.datasets.dataset import Dataset
from segconf.errors import DataError
from segconf.images.image_format import ImageFormat
from segconf.images.resizing import resize_pixels
from segconf.images.types import Header, Image
from segconf.methods.method import Method


class Sharpness(Method):
    """Cross-entropy, and a small price for doubt everywhere."""

    name = "theirs"
    terms = ("supervised", "doubt")

    def weights(self, loss):
        return {"supervised": 1.0, "doubt": 0.01}

    def loss(self, step, context):
        logs = step.outputs.log_softmax(dim=1)
        doubt = -(logs.exp() * logs).sum(dim=1).mean()
        return super().loss(step, context) | {"doubt": doubt}


class TheirData(Dataset):
    """Discs in one folder per part."""

    name = "theirdata"
    default_folder = Path("theirdata")
    variable = "THEIR_DATA"

    def find(self, root, hold_out):
        parts = [pair_folder(root / part / "in", root / part / "out", prefix=f"{part}/")
                 for part in ("train", "val", "test")]
        if not parts[0].cases:
            raise DataError(f"{root}: nothing here. Set THEIR_DATA.")
        return CaseSet(self.name, root, *(part.cases for part in parts))


class PlainBytes(ImageFormat):
    """Height and width as 32-bit numbers, then RGB."""

    name = "theirs"
    suffixes = frozenset({".theirs"})
    map_suffix = ".png"

    def read_header(self, path):
        height, width = np.frombuffer(path.read_bytes()[:8], np.uint32).tolist()
        return Header(size=(height, width), slices=1, channels=3)

    def read_image(self, path, options):
        height, width = self.read_header(path).size
        content = np.frombuffer(path.read_bytes()[8:], np.uint8).reshape(height, width, 3)
        pixels = np.ascontiguousarray(content.transpose(2, 0, 1))
        return Image(pixels if options.size is None else resize_pixels(pixels, options.size), path)

    def read_labels(self, path, slice_index):
        raise DataError(f"{path}: masks are PNG files. Convert it.")
'''
ENTRY_POINTS = """
[segconf.methods]
theirs = their_package:Sharpness

[segconf.datasets]
theirdata = their_package:TheirData

[segconf.formats]
theirs = their_package:PlainBytes
"""

COMMANDS = """
import json, sys
from segconf_cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["segconf", *arguments]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    print(chr(12), end="", flush=True)
"""


@pytest.fixture
def package(tmp_path):
    """A folder with the package as pip would leave it."""
    site = tmp_path / "site-packages"
    information = site / "their_package-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "their_package.py").write_text(MODULE)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


def write_image(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.array(pixels.shape[:2], np.uint32).tobytes() + pixels.tobytes())
    return path


@pytest.fixture
def discs(tmp_path):
    """The data set of the package: images in its format, masks as PNG."""
    for part, first, count in (("train", 0, 4), ("val", 100, 3), ("test", 200, 2)):
        for number in range(first, first + count):
            pixels, mask = disc(number)
            write_image(tmp_path / f"theirdata/{part}/in/{number}.theirs", pixels)
            (tmp_path / f"theirdata/{part}/out").mkdir(exist_ok=True)
            picture = Image.fromarray(mask.astype(np.uint8) * 255)
            picture.save(tmp_path / f"theirdata/{part}/out/{number}.png")
    return tmp_path / "theirdata"


@pytest.fixture
def said(package, tmp_path):
    """What commands print, one after the other in a process that finds the package."""

    def run(*commands):
        given = json.dumps([list(map(str, arguments)) for arguments in commands])
        finished = subprocess.run(
            [sys.executable, "-c", COMMANDS, given],
            cwd=tmp_path,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(package), str(ROOT), str(ROOT / "cli")]),
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "200",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.split("\f")[:-1]

    return run


@pytest.mark.usefixtures("discs")
def test_a_package_is_used_from_training_to_maps(said, tmp_path):
    pixels, _ = disc(300, (40, 56))
    image = write_image(tmp_path / "new.theirs", pixels)
    settings = {
        "data.size": "[32, 32]",
        "model.encoder": "tu-test_resnet",
        "model.encoder_weights": "none",
        "training.epochs": 2,
        "training.batch_labeled": 2,
        "training.device": "cpu",
    }
    changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    explained, trained, _, evaluated = said(
        ("train", "--help"),
        ("train", "theirdata", "--method", "theirs", "--out", "run", *changes),
        ("predict", image, "--out", "maps", "--checkpoint", "run", "--device", "cpu"),
        ("evaluate", "run", "--device", "cpu"),
    )
    assert "theirs" in explained
    assert "Finished 2 epochs of theirs" in trained
    with (tmp_path / "run/epochs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["doubt"]) > 0 for row in rows] == [True, True]
    split = json.loads((tmp_path / "run/split.json").read_text())
    assert split["dataset"] == "theirdata"
    assert split["labeled"] == [f"train/{number}" for number in range(4)]
    assert (tmp_path / "run/calibration.json").is_file()

    with Image.open(tmp_path / "maps/masks/new.png") as mask:
        assert mask.size == (56, 40)
    assert (tmp_path / "maps/confidence/new.png").is_file()
    record = json.loads((tmp_path / "maps/run.json").read_text())
    assert record["model"]["method"] == "theirs"
    assert "2 test images" in evaluated
    content = json.loads((tmp_path / "run/evaluation/test/metrics.json").read_text())
    assert (content["method"], content["images"]) == ("theirs", 2)
