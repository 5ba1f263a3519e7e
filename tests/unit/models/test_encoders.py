"""Encoder weights from files: layouts of torchvision, timm and smp, and files to be refused."""

import pickle

import pytest
import segmentation_models_pytorch as smp
import timm
import torch
import torchvision
from safetensors.torch import save_file

from segconf.config.schema import ModelConfig
from segconf.errors import CheckpointError
from segconf.models.unet import build_unet


def load(path, encoder="resnet18", channels=3):
    config = ModelConfig(encoder=encoder, encoder_weights=str(path), channels=channels)
    return build_unet(config).encoder.state_dict()


def write(path, weights):
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in weights.items()}, path)
    else:
        torch.save(weights, path)
    return path


@pytest.fixture(scope="module")
def resnet():
    """Weights of torchvision's ResNet18, classifier included, with BatchNorm that has seen data."""
    torch.manual_seed(3)
    weights = torchvision.models.resnet18(weights=None).state_dict()
    for name, value in weights.items():
        if name.endswith(("running_mean", "running_var")):
            value.uniform_(0.1, 1)
    return weights


def assert_holds(encoder, weights, prefix=""):
    """Every tensor of the encoder is the one of the file."""
    for name, value in encoder.items():
        torch.testing.assert_close(value, weights[prefix + name], rtol=0, atol=0)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_torchvision_with_its_classifier(tmp_path, resnet, suffix):
    assert "fc.weight" in resnet
    assert_holds(load(write(tmp_path / f"w{suffix}", resnet)), resnet)


def test_a_state_dict_inside_a_training_checkpoint(tmp_path, resnet):
    path = tmp_path / "w.pth"
    torch.save({"state_dict": resnet, "epoch": 3}, path)
    assert_holds(load(path), resnet)


@pytest.mark.parametrize("prefix", ["module.", "encoder.", "model."])
def test_prefixes(tmp_path, resnet, prefix):
    weights = {prefix + name: value for name, value in resnet.items()}
    assert_holds(load(write(tmp_path / "w.pth", weights)), resnet)


def test_old_files_without_counters(tmp_path, resnet):
    weights = {k: v for k, v in resnet.items() if not k.endswith("num_batches_tracked")}
    assert len(weights) < len(resnet)
    assert_holds(load(write(tmp_path / "w.pth", weights)), resnet)


@pytest.mark.parametrize("encoder", ["resnet18", "tu-test_resnet", "tu-test_efficientnet"])
def test_the_encoder_of_a_whole_network(tmp_path, encoder):
    torch.manual_seed(4)
    weights = smp.Unet(encoder, encoder_weights=None).state_dict()
    assert any(name.startswith("decoder.") for name in weights)
    loaded = load(write(tmp_path / "w.safetensors", weights), encoder)
    assert_holds(loaded, weights, prefix="encoder.")


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "mobilenetv3_small_050"])
def test_timm_with_its_classifier(tmp_path, name):
    torch.manual_seed(5)
    weights = timm.create_model(name, pretrained=False).state_dict()
    loaded = load(write(tmp_path / "w.pth", weights), f"tu-{name}")
    plain = {key.replace(".", "_"): value for key, value in weights.items()}
    for key, value in loaded.items():
        own = key.removeprefix("model.").replace(".", "_")
        torch.testing.assert_close(value, plain[own], rtol=0, atol=0)


def test_an_old_name_takes_the_same_weights(tmp_path):
    weights = timm.create_model("tf_efficientnet_lite0", pretrained=False).state_dict()
    path = write(tmp_path / "w.pth", weights)
    model = build_unet(ModelConfig(encoder="timm-tf_efficientnet_lite0", encoder_weights=str(path)))
    loaded = model.encoder.state_dict()
    for name in ("conv_stem.weight", "blocks.3.1.bn2.running_var", "conv_head.weight"):
        torch.testing.assert_close(loaded[name], weights[name])


def test_a_grey_input_sums_the_colours(tmp_path, resnet):
    loaded = load(write(tmp_path / "w.pth", resnet), channels=1)
    red, green, blue = resnet["conv1.weight"].unbind(dim=1)
    torch.testing.assert_close(loaded["conv1.weight"], (red + green + blue)[:, None])
    torch.testing.assert_close(loaded["layer1.0.conv1.weight"], resnet["layer1.0.conv1.weight"])


def test_four_channels_repeat_the_colours_at_the_same_total(tmp_path, resnet):
    loaded = load(write(tmp_path / "w.pth", resnet), channels=4)
    red, green, blue = resnet["conv1.weight"].unbind(dim=1)
    expected = torch.stack([red, green, blue, red], dim=1) * 3 / 4
    torch.testing.assert_close(loaded["conv1.weight"], expected)


def test_weights_of_another_encoder_list_what_does_not_fit(tmp_path, resnet):
    path = write(tmp_path / "w.pth", resnet)
    with pytest.raises(CheckpointError) as refusal:
        load(path, "resnet34")
    message = str(refusal.value)
    assert "not the weights of the encoder resnet34" in message
    # ResNet34 has a third block in its first stage; ten names are listed, the rest is counted.
    assert "missing: layer1.2.conv1.weight, layer1.2.bn1.weight" in message
    assert "more" in message


def test_unexpected_keys_and_wrong_shapes_are_listed(tmp_path, resnet):
    weights = dict(resnet) | {"strange.weight": torch.zeros(2)}
    weights["layer1.0.bn1.bias"] = torch.zeros(7)
    with pytest.raises(CheckpointError) as refusal:
        load(write(tmp_path / "w.pth", weights))
    assert "unexpected: strange.weight" in str(refusal.value)
    assert "layer1.0.bn1.bias (7,) instead of (64,)" in str(refusal.value)


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_malicious_file_is_refused_and_not_executed(tmp_path, writer):
    proof = tmp_path / "executed"
    path = tmp_path / "w.pth"
    content = {"conv1.weight": Harmful(str(proof))}
    if writer == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path)
    with pytest.raises(CheckpointError, match="foreign code"):
        load(path)
    assert not proof.exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"text", bytes(range(256)) * 20, b"\x80\x02.", b"PK\x03"])
def test_garbage_is_refused(tmp_path, suffix, content):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=str(path)):
        load(path)


def test_half_a_file_is_refused(tmp_path, resnet):
    for suffix in (".pth", ".safetensors"):
        path = write(tmp_path / f"w{suffix}", resnet)
        path.write_bytes(path.read_bytes()[:1_000_000])
        with pytest.raises(CheckpointError, match=str(path)):
            load(path)


@pytest.mark.parametrize("content", [[1, 2], {"a": 3}, torch.zeros(2)])
def test_anything_but_named_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match="expected a state_dict"):
        load(tmp_path / "w.pth")


def test_a_file_is_found_in_the_folder_of_the_weights(tmp_path, resnet, monkeypatch):
    with pytest.raises(CheckpointError, match=r"no such file .*SEGCONF_WEIGHTS"):
        load("elsewhere.pth")
    write(tmp_path / "elsewhere.pth", resnet)
    monkeypatch.setenv("SEGCONF_WEIGHTS", str(tmp_path))
    assert_holds(load("elsewhere.pth"), resnet)


@pytest.mark.parametrize(
    ("file", "encoder"),
    [
        ("resnet18_encoder.pth", "resnet18"),
        ("tf_efficientnet_lite0.pth", "tu-tf_efficientnet_lite0"),
        ("tf_efficientnet_lite0.pth", "timm-tf_efficientnet_lite0"),
    ],
)
def test_real_weights_load(shared, file, encoder):
    path = shared(f"weights/{file}")
    weights = torch.load(path, weights_only=True)
    loaded = load(path, encoder)
    first = next(value for value in loaded.values() if value.ndim == 4)
    assert any(torch.equal(first, value) for value in weights.values())
