"""A MONAI bundle: its metadata is valid, and MONAI predicts the masks of the run with it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from torch._subclasses import FakeTensorMode

from segconf.errors import FileError
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
    for number in range(len(SIZES)):
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
