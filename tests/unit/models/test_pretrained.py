"""Pretrained models: found by name, described, used for prediction and for a start."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from segconf.checkpoints.weights import load_checkpoint, start_from
from segconf.config.schema import ModelConfig
from segconf.errors import CheckpointError
from segconf.images.types import Image
from segconf.inference.choice import choose_model
from segconf.inference.model import load_model
from segconf.metrics.overlap import dice
from segconf.models.pretrained import (
    CARD,
    describe,
    file_size,
    find_model,
    pretrained_folder,
    pretrained_names,
)
from segconf.models.unet import build_unet
from tests.tiny_models import write_checkpoint

DESCRIPTION = {
    "task": "segmentation",
    "summary": "discs",
    "size": [32, 32],
    "encoder": "resnet18",
    "method": "consistency",
    "class_names": ["background", "disc"],
    "licence": "MIT",
    "trained_on": "nothing",
    "weights_sha256": "0",
    "quality": {
        "images": 3,
        "on": "three images",
        "dice": {"value": 0.8, "interval": [0.7, 0.9]},
        "jaccard": {"value": 0.7, "interval": [0.6, 0.8]},
        "aurc": {"value": 0.01, "interval": [0.0, 0.02]},
        "ece": {"value": 0.02, "interval": [0.01, 0.03]},
    },
    "referred": 0.2,
}


@pytest.fixture
def discs(tmp_path, monkeypatch):
    """A pretrained model called `discs` in a folder of its own."""
    root = tmp_path / "pretrained"
    folder = root / "discs"
    write_checkpoint(folder / "best.safetensors")
    (folder / "model.json").write_text(json.dumps(DESCRIPTION), encoding="utf-8")
    monkeypatch.setattr("segconf.models.pretrained.pretrained_root", lambda: root)
    monkeypatch.setattr("segconf.inference.choice.DEFAULT_MODEL", "discs")
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_name_leads_to_its_folder_and_a_path_comes_first(discs, tmp_path):
    assert pretrained_names() == ["discs"]
    assert find_model("discs") == discs
    own = tmp_path / "discs"
    own.mkdir()
    assert find_model("discs").resolve() == own
    with pytest.raises(CheckpointError, match=r"disks: no such model.*\(discs\)"):
        find_model("disks")
    with pytest.raises(
        CheckpointError, match=r"^disks: no such pretrained model. There is: discs.$"
    ):
        pretrained_folder("disks")


def test_a_model_describes_itself(discs):
    about = describe("discs")
    assert (about.size, about.quality.dice.value) == ((32, 32), 0.8)
    assert file_size("discs") == (discs / "best.safetensors").stat().st_size
    (discs / "model.json").write_text(json.dumps(DESCRIPTION | {"task": "cooking"}))
    with pytest.raises(CheckpointError, match=r"model\.json: task"):
        describe("discs")


def test_without_a_run_the_pretrained_model_is_taken(discs):
    choice = choose_model()
    assert choice.path == discs
    assert choice.name == "pretrained model discs"
    assert "no finished run under" in choice.reason
    assert load_model(device="cpu").choice == choice
    assert load_model("discs", device="cpu").choice.reason == "as asked for"


def test_without_any_model_the_ways_out_are_named(discs):
    shutil.rmtree(discs)
    with pytest.raises(CheckpointError, match="no finished run here"):
        choose_model()


def test_a_network_starts_from_all_weights_of_another(discs):
    network = build_unet(ModelConfig(encoder="resnet18", encoder_weights="none"))
    start_from(network, "discs")
    given = load_checkpoint(discs).model.state_dict()
    assert all(torch.equal(value, given[name]) for name, value in network.state_dict().items())


def test_other_classes_keep_a_new_last_layer(discs, caplog):
    config = ModelConfig(encoder="resnet18", encoder_weights="none", classes=4)
    network = build_unet(config)
    last = network.get_parameter("segmentation_head.0.weight").clone()
    start_from(network, "discs")
    given = load_checkpoint(discs).model.state_dict()
    for name, value in network.state_dict().items():
        assert name.startswith("segmentation_head.") or torch.equal(value, given[name])
    torch.testing.assert_close(network.get_parameter("segmentation_head.0.weight"), last)
    assert "the last layer starts from random weights" in caplog.text


@pytest.mark.usefixtures("discs")
@pytest.mark.parametrize("change", [{"encoder": "resnet34"}, {"channels": 1}])
def test_another_architecture_is_refused(change):
    values = {"encoder": "resnet18", "encoder_weights": "none"} | change
    with pytest.raises(CheckpointError, match="does not fit the network of this run"):
        start_from(build_unet(ModelConfig(**values)), "discs")


def test_the_encoder_of_a_pretrained_model_is_a_start_too(discs):
    network = build_unet(ModelConfig(encoder="resnet18", encoder_weights="discs"))
    given = load_checkpoint(discs).model.state_dict()
    for name, value in network.state_dict().items():
        same = torch.equal(value, given[name])
        assert same or not name.startswith("encoder.")
    assert not torch.equal(
        network.get_parameter("segmentation_head.0.weight"), given["segmentation_head.0.weight"]
    )


@pytest.fixture(scope="module")
def isic2017():
    """The pretrained model that comes with segconf."""
    return load_model("isic2017", device="cpu")


def test_the_shipped_model_is_small_complete_and_its_own(isic2017):
    about = describe("isic2017")
    assert file_size("isic2017") < 14e6
    assert about.weights_sha256 == isic2017.weights_sha256
    assert about.size == isic2017.config.data.size
    assert about.class_names == ("background", "skin lesion")
    assert {file.name for file in pretrained_folder("isic2017").iterdir()} == {
        *("MODEL_CARD.md", "best.safetensors", "calibration.json", "model.json"),
        "ood.safetensors",
    }


def test_the_shipped_model_is_calibrated_and_knows_its_kind_of_images(isic2017):
    stored = isic2017.calibration
    assert stored.temperature is not None
    assert (stored.threshold.max_risk, stored.referral.target_dice) == (0.02, 0.85)
    assert stored.threshold.images == stored.referral.images == 150
    assert isic2017.detector is not None


def test_numbers_of_the_card_are_those_of_the_description():
    card = (pretrained_folder("isic2017") / CARD).read_text(encoding="utf-8")
    quality = describe("isic2017").quality
    row = next(line for line in card.splitlines() if line.startswith(f"| {quality.images} held"))
    expected = [
        f"{f'{number.value:.3f}'.lstrip('0')} ({low[1:]} to {high[1:]})"
        for number in (quality.jaccard, quality.dice)
        for low, high in [[f"{bound:.3f}" for bound in number.interval]]
    ]
    expected += [
        f"{scale * number.value:.2f} ({scale * low:.2f} to {scale * high:.2f})"
        for number, scale in ((quality.aurc, 1000), (quality.ece, 100))
        for low, high in [number.interval]
    ]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == expected


def test_a_dark_spot_on_skin_is_outlined_by_the_shipped_model(isic2017):
    rows, columns = np.mgrid[:300, :400]
    distance = np.hypot(rows - 150, columns - 200)
    skin = np.array([205, 160, 140]) + 4 * np.random.default_rng(0).standard_normal((300, 400, 3))
    # A soft border of 8 pixels around a radius of 70.
    depth = 1 / (1 + np.exp((distance - 70) / 4))[..., None]
    pixels = (skin * (1 - depth) + np.array([95, 60, 45]) * depth).clip(0, 255).astype(np.uint8)
    found = isic2017.predict(Image(pixels.transpose(2, 0, 1), Path("spot.png"))).mask > 0
    assert dice(found, distance < 70) > 0.9
