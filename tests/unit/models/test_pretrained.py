"""Pretrained models: found by name, described, used for prediction and for a start."""

import json
import shutil

import pytest
import torch

from segconf.checkpoints.weights import load_checkpoint, start_from
from segconf.config.schema import ModelConfig
from segconf.errors import CheckpointError
from segconf.inference.choice import choose_model
from segconf.inference.model import load_model
from segconf.models.pretrained import describe, file_size, find_model, pretrained_names
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
