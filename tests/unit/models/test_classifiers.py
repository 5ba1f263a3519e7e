"""Classifiers: parameter counts of the papers, outputs of other libraries, shapes, weights."""

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.nn.functional import batch_norm, conv2d

from segconf.calibration.calibrators import TemperatureScaling
from segconf.config.schema import ExperimentConfig, ModelConfig
from segconf.errors import CheckpointError, ConfigError
from segconf.inference.predictors import DropoutPredictor, NoisyLogits, SinglePass, predict_batch
from segconf.models import classifiers
from segconf.models.classifiers import build_classifier
from segconf.models.decoder import add_decoder_dropout
from segconf.models.unet import decode, encode
from segconf.ood.features import FeatureExtractor, pooled_features
from segconf.packaging.deployed import DeployedNetwork

OWN = ("preact_resnet20", "densenet_bc_22_6", "resnet18_32")


def config(encoder, weights="none", channels=3, classes=10):
    return ModelConfig(encoder=encoder, encoder_weights=weights, channels=channels, classes=classes)


def network(encoder, seed=0, **options):
    """Untrained, but with BatchNorm statistics of its own."""
    torch.manual_seed(seed)
    model = build_classifier(config(encoder, **options))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the statistics of all that was seen
    model.train()(torch.randn(8, options.get("channels", 3), 32, 32))
    return model.eval()


def images(count=2, channels=3, side=32):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, channels, side, side, generator=generator)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_preact_resnet_has_the_parameters_of_the_paper():
    """1.7 million at depth 110 (He et al. 2016, table 2), counted by hand at depth 110 and 20."""
    for depth, in_millions in ((110, 1.7), (164, 2.6), (20, 0.3)):
        n = (depth - 2) // 6

        def stage(before, features, n=n):
            first = 9 * before * features + 9 * features**2 + 2 * before + 2 * features
            rest = (n - 1) * (2 * 9 * features**2 + 4 * features)
            return first + rest + (before * features if before != features else 0)

        expected = 27 * 16 + stage(16, 16) + stage(16, 32) + stage(32, 64) + 2 * 64 + 650
        found = parameters(build_classifier(config(f"preact_resnet{depth}")))
        assert found == expected
        assert round(found / 1e6, 1) == in_millions


def test_densenet_bc_has_the_parameters_of_the_paper():
    """0.8 million for 100 layers of growth 12 (Huang et al. 2017, table 2)."""
    found = parameters(build_classifier(config("densenet_bc_100_12")))
    other = torchvision.models.DenseNet(12, (16, 16, 16), 24, bn_size=4, num_classes=10)
    # There the first layer is of 7 x 7 and has a normalisation.
    assert found == parameters(other) - 24 * 3 * (49 - 9) - 2 * 24
    assert round(found / 1e6, 1) == 0.8


def give(model, weights):
    """Load weights that stand in the same order under other names."""
    own = model.state_dict()
    assert [v.shape for v in own.values()] == [v.shape for v in weights.values()]
    model.load_state_dict(dict(zip(own, weights.values(), strict=True)))
    return model.eval()


def randomise(model):
    for name, value in model.state_dict().items():
        if name.endswith(("running_mean", "running_var", "weight", "bias")) and value.ndim == 1:
            value.uniform_(0.5, 1.5)
    return model.eval()


@torch.no_grad()
def test_resnet18_computes_what_that_of_torchvision_does():
    torch.manual_seed(1)
    other = torchvision.models.resnet18(num_classes=10)
    other.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    other.maxpool = nn.Identity()
    randomise(other)
    weights = other.state_dict()
    weights["fc.weight"] = weights["fc.weight"][:, :, None, None]
    ours = give(build_classifier(config("resnet18_32")), weights)
    torch.testing.assert_close(ours(images())[:, :, 0, 0], other(images()), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_densenet_computes_what_that_of_torchvision_does():
    torch.manual_seed(1)
    other = torchvision.models.DenseNet(12, (3, 3, 3), 24, bn_size=4, num_classes=10)
    other.features.conv0 = nn.Conv2d(3, 24, 3, padding=1, bias=False)
    other.features.norm0 = other.features.relu0 = other.features.pool0 = nn.Identity()
    randomise(other)
    weights = other.state_dict()
    weights["classifier.weight"] = weights["classifier.weight"][:, :, None, None]
    ours = give(build_classifier(config("densenet_bc_22_12")), weights)
    torch.testing.assert_close(ours(images())[:, :, 0, 0], other(images()), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_preact_resnet_follows_its_equations():
    """Depth 8: one block per stage, written out with the weights of the network."""
    model = randomise(build_classifier(config("preact_resnet8")))
    weights = iter(model.state_dict().items())

    def following(ending):
        name, value = next(weights)
        assert name.endswith(ending), name
        return value

    def normalised(x):
        scale, shift, mean, var = (
            following(e) for e in ("weight", "bias", "running_mean", "running_var")
        )
        following("num_batches_tracked")
        return batch_norm(x, mean, var, scale, shift).clamp(min=0)

    x = conv2d(images(), following("0.weight"), padding=1)
    for stride in (1, 2, 2):
        active = normalised(x)
        inner = conv2d(active, following("conv1.weight"), stride=stride, padding=1)
        residual = conv2d(normalised(inner), following("conv2.weight"), padding=1)
        if stride == 2:
            x = conv2d(active, following("shortcut.weight"), stride=2)
        x = x + residual
    pooled = normalised(x).mean(dim=(2, 3))
    expected = pooled @ following("head.weight")[:, :, 0, 0].T + following("head.bias")
    torch.testing.assert_close(model(images())[:, :, 0, 0], expected)


@torch.no_grad()
def test_the_mlp_is_three_linear_layers():
    model = build_classifier(config("mlp", channels=5, classes=3))
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    weights = list(model.parameters())
    x = rows
    for weight, bias in zip(weights[:4:2], weights[1:4:2], strict=True):
        x = (x @ weight[:, :, 0, 0].T + bias).clamp(min=0)
    expected = x @ weights[4][:, :, 0, 0].T + weights[5]
    found = model(rows[:, :, None, None])
    assert found.shape == (4, 3, 1, 1)
    torch.testing.assert_close(found[:, :, 0, 0], expected)


@pytest.mark.parametrize("encoder", [*OWN, "tu-test_resnet", "test_efficientnet", "test_vit"])
def test_a_label_is_a_mask_of_one_pixel(encoder):
    side = 160 if encoder == "test_vit" else 32
    model = build_classifier(config(encoder, channels=1, classes=4)).eval()
    with torch.no_grad():
        assert model(images(2, 1, side)).shape == (2, 4, 1, 1)


@pytest.mark.parametrize("encoder", [*OWN, "test_resnet"])
def test_predictors_and_detector_find_the_parts_of_a_unet(encoder):
    model = network(encoder)
    with torch.no_grad():
        expected = model(images())
        maps = encode(model, images())
        assert torch.equal(maps[0], images())
        assert maps[1].shape[2:] > maps[3].shape[2:]
        assert torch.equal(decode(model, maps), expected)
        one = predict_batch(SinglePass(model), images())
        assert torch.equal(one.logits, expected)
        logits, features = DeployedNetwork(
            [model], calibrator=TemperatureScaling(temperature=2.0), features=True
        )(images())
    torch.testing.assert_close(logits, expected / 2)
    assert torch.equal(features, pooled_features(maps))
    experiment = ExperimentConfig(model=config(encoder))
    extractor = FeatureExtractor.of(model, experiment, (32, 32), (32, 32))
    assert len(extractor.channels()) == 3


def test_dropout_is_before_the_last_layer_and_the_backbone_runs_once():
    model = network("preact_resnet8")
    add_decoder_dropout(model, 0.5)
    model.eval()
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append("encoder"))
    predictor = DropoutPredictor(model, 40)
    with torch.no_grad():
        passes = [one.logits for one in predictor(images())]
        assert calls == ["encoder"]
        pooled = model.encoder(images())[-1].mean(dim=(2, 3))  # (B, 64)
        for logits, decoder in zip(passes, predictor.decoders, strict=True):
            kept = decoder.blocks[0].dropout.factors.flatten()
            assert set(kept.tolist()) == {0.0, 2.0}
            weight, bias = model.segmentation_head.weight[:, :, 0, 0], model.segmentation_head.bias
            torch.testing.assert_close(logits[:, :, 0, 0], (pooled * kept) @ weight.T + bias)


def test_twice_the_outputs_are_means_and_log_variances():
    model = network("preact_resnet8", classes=6)
    add_decoder_dropout(model, 0.2)
    predictor = NoisyLogits(DropoutPredictor(model.eval(), 4), classes=3)
    found = predict_batch(predictor, images()).logits
    assert found.shape == (2, 3, 1, 1)
    torch.testing.assert_close(found.exp().sum(dim=1), torch.ones(2, 1, 1))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("preact_resnet21", "Take 20 or 26"),
        ("preact_resnet2", "Take 8 or 14"),
        ("densenet_bc_101_12", "Take 100 or 106"),
        ("preact_resnet", "preact_resnet20"),
        ("tu-test_resnett", "test_resnet"),
    ],
)
def test_unknown_names_are_refused_with_a_way_out(name, hint):
    with pytest.raises(ConfigError, match=hint):
        build_classifier(config(name))


def test_networks_of_ours_have_no_imagenet_weights():
    with pytest.raises(ConfigError, match="encoder_weights=none"):
        build_classifier(config("preact_resnet20", "imagenet"))
    build_classifier(config("preact_resnet20", "imagenet"), pretrained=False)


@pytest.mark.parametrize("error", [OSError("no route"), RuntimeError("none")])
def test_without_hub_there_are_two_ways_out(monkeypatch, error):
    def out_of_reach(*_arguments, **_options):
        raise error

    monkeypatch.setattr(classifiers.timm, "create_model", out_of_reach)
    with pytest.raises(CheckpointError) as refusal:
        build_classifier(config("resnet18", "imagenet"))
    assert "model.encoder_weights=FILE" in str(refusal.value)
    assert "model.encoder_weights=none" in str(refusal.value)


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["test_resnet", "test_efficientnet", "test_convnext", "mobilenetv3_small_050"]
)
def test_a_file_of_timm_loads_without_its_classifier(tmp_path, name):
    torch.manual_seed(5)
    other = randomise(timm.create_model(name, pretrained=False))
    torch.save(other.state_dict(), tmp_path / "w.pth")
    model = build_classifier(config(name, str(tmp_path / "w.pth"))).eval()
    expected = other.forward_head(other.forward_features(images(2, 3, 64)), pre_logits=True)
    found = model.decoder(model.encoder(images(2, 3, 64)))
    torch.testing.assert_close(found[:, :, 0, 0], expected)


def test_the_encoder_of_another_run_loads(tmp_path):
    other = network("preact_resnet8", seed=1)
    torch.save(other.state_dict(), tmp_path / "w.pth")
    model = build_classifier(config("preact_resnet8", str(tmp_path / "w.pth"), classes=3)).eval()
    with torch.no_grad():
        for found, expected in zip(model.encoder(images()), other.encoder(images()), strict=True):
            assert torch.equal(found, expected)


def test_a_size_that_a_network_cannot_take_is_named():
    model = build_classifier(config("vit_tiny_patch16_224")).eval()
    with pytest.raises(ConfigError, match=r"data.size = 32, 32: vit_tiny"):
        model(images())


def test_real_weights_load(shared):
    path = shared("weights/tf_efficientnet_lite0.pth")
    weights = torch.load(path, weights_only=True)
    assert "classifier.weight" in weights
    model = build_classifier(config("tf_efficientnet_lite0", str(path), classes=3))
    assert torch.equal(model.encoder.model.conv_head.weight, weights["conv_head.weight"])
    assert model.segmentation_head.weight.shape == (3, 1280, 1, 1)
