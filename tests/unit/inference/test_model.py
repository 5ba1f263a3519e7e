"""A loaded model: geometry, temperature, and the logits that evaluation shares."""

import subprocess
import sys

import nibabel
import numpy as np
import PIL.Image
import pytest
import torch

import segconf
from segconf.checkpoints.weights import load_checkpoint, save_checkpoint
from segconf.errors import CheckpointError, ConfigError
from segconf.images.types import Image
from segconf.inference.model import load_model
from segconf.inference.pipeline import PredictOptions
from segconf.inference.predict import predict
from segconf.inference.predictors import SinglePass
from segconf.inference.torch_model import native_logits
from segconf.results.rows import NOT_FINITE
from tests.tiny_models import brightness_model, disc, write_checkpoint, write_picture


def test_importing_segconf_does_not_import_torch():
    code = "import segconf, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert segconf.load_model is load_model
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = segconf.nothing


def test_a_prediction_has_the_grid_of_the_file(tmp_path):
    model = brightness_model(tmp_path)
    path = write_picture(tmp_path / "a.png", disc(70, 110))

    result = model.predict(path)

    assert result.mask.shape == result.confidence.shape == (70, 110)
    assert result.probabilities.shape == (2, 70, 110)
    bright = disc(70, 110).mean(axis=-1) > 120
    assert (result.mask == bright).mean() > 0.97
    np.testing.assert_allclose(result.probabilities.sum(axis=0), 1, atol=1e-6)
    expected = result.probabilities.max(axis=0)
    np.testing.assert_allclose(result.confidence, expected, atol=1.1 / 65535)
    assert result.overlay().shape[2] == 3


def test_exif_orientation_is_applied(tmp_path):
    model = brightness_model(tmp_path)
    pixels = disc(40, 90)
    pixels[:20, :20] = 255  # a corner that shows where up is
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise to see it upright
    path = write_picture(tmp_path / "a.png", pixels, exif=exif)
    upright = write_picture(tmp_path / "b.png", np.ascontiguousarray(np.rot90(pixels, -1)))

    np.testing.assert_array_equal(model.predict(path).mask, model.predict(upright).mask)
    assert model.predict(path).mask.shape == (90, 40)
    assert model.predict(path).mask[5, 85 - 50] == 1  # top right


@pytest.mark.parametrize("tile", [False, True])
def test_the_argmax_of_native_logits_is_the_mask(tmp_path, tile):
    model = load_model(write_checkpoint(tmp_path / "w.safetensors", classes=3), device="cpu")
    image = model.read(write_picture(tmp_path / "a.png", disc(75, 50)))

    logits = native_logits(model, image, tile=tile)

    assert logits.shape == (3, 75, 50)
    np.testing.assert_array_equal(
        logits.argmax(dim=0).numpy(), model.maps(image, tile=tile).mask[0]
    )


def test_temperature_divides_the_logits(tmp_path):
    image = Image(np.ascontiguousarray(disc(32, 32).transpose(2, 0, 1)), tmp_path / "x.png")
    plain = native_logits(brightness_model(tmp_path / "1"), image)
    warm = native_logits(brightness_model(tmp_path / "2", temperature=2.0), image)
    torch.testing.assert_close(plain / 2, warm)
    confidence = brightness_model(tmp_path / "2", temperature=2.0).predict(image).confidence
    expected = warm.softmax(dim=0).amax(dim=0).numpy()
    np.testing.assert_allclose(confidence, expected, atol=1.1 / 65535)


def test_volumes_are_predicted_slice_by_slice(tmp_path):
    model = brightness_model(tmp_path)
    voxels = np.zeros((50, 40, 3), np.float32)  # columns, rows, slices
    voxels[10:20, 5:25, 1] = 100
    path = tmp_path / "v.nii.gz"
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([-2, -3, 4, 1.0])), path)

    result = model.predict(path)

    assert result.mask.shape == (3, 40, 50)
    assert result.probabilities.shape == (2, 3, 40, 50)
    assert result.mask[0].sum() == result.mask[2].sum() == 0
    found = np.argwhere(result.mask[1])
    assert np.abs(found.mean(axis=0) - [14.5, 14.5]).max() < 1
    assert result.overlay(slice_index=1).shape[2] == 3


def test_unknown_devices_are_refused(tmp_path):
    path = write_checkpoint(tmp_path / "w.safetensors")
    with pytest.raises(ConfigError, match="unknown"):
        load_model(path, device="quantum")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    path = write_checkpoint(tmp_path / "best.safetensors")
    trained = load_checkpoint(path)
    weights = trained.model.state_dict()
    weights["encoder.conv1.weight"][0, 0, 0, 0] = value
    save_checkpoint(path, weights, trained.config)
    with pytest.raises(CheckpointError, match=r"encoder\.conv1\.weight holds NaN or infinity"):
        load_model(path)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan"), 1e-300, 1e300])
def test_a_temperature_of_no_use_is_refused(tmp_path, temperature):
    path = write_checkpoint(tmp_path / "best.safetensors", temperature=temperature)
    with pytest.raises(CheckpointError, match=r"temperature .* segconf calibrate"):
        load_model(path)


class Broken(torch.nn.Module):
    """NaN for dark pictures, zeros for others."""

    def forward(self, images):
        dark = images.mean(dim=(1, 2, 3), keepdim=True) < 0
        return torch.where(dark, torch.nan, 0.0).expand(-1, 2, *images.shape[2:])


@pytest.mark.parametrize("tile", [False, True])
def test_an_output_that_is_not_finite_fails_that_image_only(tmp_path, tile):
    model = brightness_model(tmp_path / "run")
    model.predictor = SinglePass(Broken())
    for name, level in (("dark", 5), ("bright", 250)):
        write_picture(tmp_path / f"images/{name}.png", np.full((40, 40, 3), level, np.uint8))
    report = predict(
        model, tmp_path / "images", tmp_path / "maps", options=PredictOptions(tile=tile)
    )
    (failed,) = report.broken
    assert failed.case == "dark"
    assert failed.flags == (NOT_FINITE,)
    assert not (tmp_path / "maps/masks/dark.png").exists()
    assert (tmp_path / "maps/masks/bright.png").exists()
    with pytest.raises(CheckpointError, match="output is not finite"):
        model.grid_logits(np.zeros((1, 32, 32, 3), np.uint8))
