"""A MONAI bundle: its metadata is valid, and MONAI predicts the masks of the run with it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.TiffImagePlugin
import pytest
import torch
from monai.bundle import ConfigParser
from torch._subclasses import FakeTensorMode

from segconf.errors import FileError
from segconf.images.io import read_image
from segconf.inference.model import load_model
from segconf.packaging import monai_bundle
from segconf.packaging.package import package_monai
from tests.packaged_runs import calibrated_run
from tests.tiny_models import disc, write_checkpoint, write_picture

SCHEMA = Path(__file__).resolve().parents[1] / "references" / "monai_metadata.json"
SIZES = [(70, 110), (201, 150), (20, 33)]


def test_monai_accepts_the_bundle_and_predicts_the_same_masks(tmp_path):
    run = calibrated_run(tmp_path / "run")
    written = package_monai(run, tmp_path / "bundle")
    assert written.difference < 1e-4
    for number, (height, width) in enumerate(SIZES):
        write_picture(tmp_path / "images" / f"{number}.png", disc(height, width, seed=number))
    deep = disc(70, 110)[..., 0].astype(np.uint16) * 200
    write_picture(tmp_path / "images" / f"{len(SIZES)}.png", deep)
    shutil.copy(SCHEMA, tmp_path / "schema.json")  # where MONAI would put what it downloads
    code = (
        "from monai.bundle import run, verify_metadata\n"
        "verify_metadata(meta_file='bundle/configs/metadata.json', filepath='schema.json')\n"
        "run(config_file='bundle/configs/inference.json', bundle_root='bundle', "
        "dataset_dir='images', output_dir='out')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    model = load_model(run, device="cpu")
    for number in range(len(SIZES) + 1):
        expected = model.predict(tmp_path / "images" / f"{number}.png")
        mask = np.asarray(PIL.Image.open(tmp_path / "out" / f"{number}_mask.png"))
        assert (mask == expected.mask).mean() >= 0.9999
        levels = np.asarray(PIL.Image.open(tmp_path / "out" / f"{number}_confidence.png"))
        assert np.abs(levels / 255 - expected.confidence).max() < 1.05 / 255  # rounded down
    about = json.loads((tmp_path / "bundle/configs/metadata.json").read_text(encoding="utf-8"))
    channels = about["network_data_format"]["outputs"]["pred"]["channel_def"]
    assert channels == {"0": "background", "1": "class 1", "2": "class 2"}
    assert about["weights_sha256"] == model.weights_sha256
    assert "not a medical device" in (tmp_path / "bundle/docs/README.md").read_text()


@pytest.mark.parametrize("channels", [1, 3])
def test_deep_grey_levels_are_reduced_as_predict_reduces_them(tmp_path, channels):
    levels = np.random.default_rng(0).integers(0, 65536, (30, 40)).astype(np.uint16)
    inverted = PIL.TiffImagePlugin.ImageFileDirectory_v2()
    inverted[262] = 0  # white is zero
    files = {
        "a.png": (levels, {}),
        "b.tif": (levels, {}),
        "c.tif": (levels, {"tiffinfo": inverted}),
        "d.tif": (np.float32(levels / 65535), {}),
        "e.jpg": (disc(30, 40), {}),
    }
    parser = ConfigParser(monai_bundle.inference(channels))
    reader = parser.get_parsed_content("reader")
    for name, (pixels, options) in files.items():
        path = write_picture(tmp_path / name, pixels, **options)
        found = np.atleast_3d(np.asarray(reader.read(path))).transpose(2, 0, 1)
        assert np.array_equal(found, read_image(path, channels=channels).pixels), name


def test_a_graphics_card_interpolates_no_integers(monkeypatch):
    seen = []

    def interpolate(values, *arguments, **options):
        seen.append((values.dtype, values.device.type))
        return torch.nn.functional.interpolate(values, *arguments, **options)

    monkeypatch.setattr(monai_bundle, "interpolate", interpolate)
    with FakeTensorMode():  # without a graphics card
        network = monai_bundle.BundleNetwork(
            torch.nn.Identity(), (4, 4), torch.full((3,), 0.5), torch.ones(3)
        ).to("cuda")
        found = network(torch.zeros(1, 3, 6, 8, device="cuda"))
    assert seen == [(torch.uint8, "cpu"), (torch.float32, "cuda")]
    assert (found.shape, found.device.type) == ((1, 3, 6, 8), "cuda")


def test_a_folder_that_holds_something_is_refused(tmp_path):
    write_checkpoint(tmp_path / "w.safetensors")
    with pytest.raises(FileError, match=r"holds other files, such as w\.safetensors"):
        package_monai(tmp_path / "w.safetensors", tmp_path)
