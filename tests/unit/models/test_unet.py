"""The network of a configuration: names, shapes, normalisation, and a hub out of reach."""

import pytest
import torch

from segconf.config.schema import ModelConfig
from segconf.errors import CheckpointError, ConfigError
from segconf.models import unet as network
from segconf.models.encoders import encoder_normalization
from segconf.models.unet import build_unet


def config(encoder="tu-test_resnet", weights="none", channels=3, classes=2):
    return ModelConfig(encoder=encoder, encoder_weights=weights, channels=channels, classes=classes)


@pytest.mark.parametrize(("channels", "classes"), [(3, 2), (1, 4), (4, 2), (5, 3)])
def test_any_number_of_channels_and_classes(channels, classes):
    model = build_unet(config(channels=channels, classes=classes)).eval()
    assert model(torch.zeros(2, channels, 32, 64)).shape == (2, classes, 32, 64)


def test_the_output_has_no_activation():
    model = build_unet(config()).eval()
    logits = model(torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert logits.min() < 0
    assert (logits.sum(dim=1) - 1).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "hint"), [("resnet35", "resnet34"), ("tu-test_resnett", "tu-test_resnet"), ("?", "")]
)
def test_unknown_encoders_are_refused_with_the_nearest_names(name, hint):
    with pytest.raises(ConfigError, match="unknown encoder") as refusal:
        build_unet(config(name))
    assert hint in str(refusal.value)


def test_an_encoder_without_five_stages_is_refused():
    with pytest.raises(ConfigError, match=r"tu-vit_tiny_patch16_224: cannot be the encoder"):
        build_unet(config("tu-vit_tiny_patch16_224"))


@pytest.mark.parametrize("error", [OSError("no route"), KeyError("imagenet"), RuntimeError("none")])
def test_without_hub_there_are_two_ways_out(monkeypatch, error):
    def out_of_reach(*_arguments, **_options):
        raise error

    monkeypatch.setattr(network.smp, "Unet", out_of_reach)
    with pytest.raises(CheckpointError) as refusal:
        build_unet(config("resnet34", "imagenet"))
    assert "model.encoder_weights=FILE" in str(refusal.value)
    assert "model.encoder_weights=none" in str(refusal.value)


def test_trained_weights_need_no_encoder_weights():
    build_unet(config(weights="imagenet"), pretrained=False)
    build_unet(config(weights="no-such-file.pth"), pretrained=False)


@pytest.mark.parametrize(
    ("encoder", "mean", "std"),
    [
        ("resnet34", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("tu-resnet34", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("efficientnet-b0", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("tu-tf_efficientnet_lite0", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ("timm-tf_efficientnet_lite0", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ("inceptionv4", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ],
)
def test_pixels_are_normalised_as_the_encoder_was_trained(encoder, mean, std):
    assert encoder_normalization(encoder, 3) == (mean, std)


def test_other_channels_get_the_mean_of_the_colours():
    mean, std = encoder_normalization("resnet34", 1)
    assert mean == pytest.approx(((0.485 + 0.456 + 0.406) / 3,))
    assert std == pytest.approx(((0.229 + 0.224 + 0.225) / 3,))
    assert len(encoder_normalization("resnet34", 5)[0]) == 5
