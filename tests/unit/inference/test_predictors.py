"""Predictors: their limits without dropout and noise; nothing but the image counts."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from segconf.checkpoints.weights import load_checkpoint, save_checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.inference.model import load_model
from segconf.inference.predictors import (
    DropoutPredictor,
    NoisyLogits,
    Pass,
    SinglePass,
    predict_batch,
)
from segconf.methods.method import method_of
from tests.references.aleatoric import expected_probability

SIZE = (32, 32)


def experiment(method, *, dropout=0.2, passes=6):
    return ExperimentConfig.model_validate(
        {
            "model": {"encoder": "tu-test_resnet", "encoder_weights": "none", "dropout": dropout},
            "data": {"size": SIZE},
            "training": {"method": method},
            "inference": {"passes": passes},
        }
    )


def network(method="mcdropout", dropout=0.2):
    """Untrained, but with BatchNorm statistics and logits of a useful size."""
    config = experiment(method, dropout=dropout)
    torch.manual_seed(0)
    model = method_of(config).build(config.model).train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the statistics of all that was seen
    model(torch.randn(4, 3, *SIZE))
    return model.eval()


def images(count=3, seed=7):
    return torch.randn(count, 3, *SIZE, generator=torch.Generator().manual_seed(seed))


def probabilities(predictor, batch):
    return predict_batch(predictor, batch).logits.softmax(dim=1)


def test_without_dropout_all_passes_are_the_deterministic_one():
    model = network(dropout=0.0)
    with torch.no_grad():
        expected = model(images())
        logits = torch.stack([one.logits for one in DropoutPredictor(model, 4)(images())])
    assert (logits.var(dim=0) == 0).all()
    assert torch.equal(logits[0], expected)


def test_the_mean_converges_to_the_softmax_as_dropout_vanishes():
    model = network()
    with torch.no_grad():
        expected = model(images()).softmax(dim=1)
    errors = []
    for share in (0.4, 0.1, 0.01, 0.0):
        for block in model.decoder.blocks:
            block.rate = share
        errors.append(
            (probabilities(DropoutPredictor(model, 10), images()) - expected).abs().mean()
        )
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[0] > 0.01
    assert errors[3] < 1e-6


class Multiply(nn.Module):
    def __init__(self, factors):
        super().__init__()
        self.factors = factors

    def forward(self, features):
        return torch.einsum("bchw,c->bchw", features, self.factors)


def test_the_encoder_once_gives_what_whole_passes_with_the_same_channels_give():
    model = network()
    predictor = DropoutPredictor(model, 5)
    with torch.no_grad():
        fast = [one.logits for one in predictor(images())]
        assert len(fast) == predictor.count == 5
        for logits, decoder in zip(fast, predictor.decoders, strict=True):
            for block, thin in zip(model.decoder.blocks, decoder.blocks, strict=True):
                block.dropout = Multiply(thin.dropout.factors.flatten())
            torch.testing.assert_close(logits, model(images()))
    assert min((one - other).abs().max() for one in fast for other in fast if one is not other) > 0


def test_the_encoder_runs_once():
    model = network()
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append("encoder"))
    model.segmentation_head.register_forward_hook(lambda *_: calls.append("head"))
    predict_batch(DropoutPredictor(model, 3), images())
    assert calls == ["encoder", "head", "head", "head"]


def test_the_average_is_over_probabilities():
    predictor = DropoutPredictor(network(), 5)
    with torch.no_grad():
        single = [one.logits.softmax(dim=1) for one in predictor(images())]
    expected = torch.stack(single).mean(dim=0)
    torch.testing.assert_close(probabilities(predictor, images()), expected)


@pytest.mark.parametrize("method", ["mcdropout", "aleatoric"])
def test_what_is_predicted_depends_on_the_image_alone(tmp_path, method):
    config = experiment(method)
    path = tmp_path / "best.safetensors"
    save_checkpoint(path, network(method).state_dict(), config)
    one, all_at_once = (load_model(path, device="cpu", batch_size=size) for size in (1, 5))
    batch = images(5)
    alone = torch.cat([one.batches(image[None])[0] for image in batch])
    torch.testing.assert_close(alone, all_at_once.batches(batch)[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone.flip(0), one.batches(batch.flip(0))[0], rtol=0, atol=0)
    with ThreadPoolExecutor(4) as pool:
        threaded = torch.cat(list(pool.map(lambda image: one.batches(image[None])[0], batch)))
    torch.testing.assert_close(threaded, alone, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["mcdropout", "aleatoric"])
def test_checkpoints_come_back_with_their_method(tmp_path, method):
    config = experiment(method, dropout=0.35, passes=4)
    model = network(method, dropout=0.35)
    save_checkpoint(tmp_path / "w.safetensors", model.state_dict(), config)
    checkpoint = load_checkpoint(tmp_path / "w.safetensors")
    assert checkpoint.config == config
    assert not checkpoint.model.training
    assert checkpoint.model.get_submodule("decoder.blocks.4.dropout").p == 0.35
    predictor = method_of(config).predictor(checkpoint)
    assert predictor.count == method_of(config).passes(config) == 4
    again = DropoutPredictor(model, 4)
    if method == "aleatoric":
        again = NoisyLogits(again, 2)
    assert torch.equal(probabilities(predictor, images()), probabilities(again, images()))


@pytest.mark.parametrize("method", ["softmax", "crl", "consistency"])
def test_other_methods_take_one_pass(tmp_path, method):
    config = experiment(method)
    save_checkpoint(tmp_path / "w.safetensors", network(method).state_dict(), config)
    predictor = method_of(config).predictor(load_checkpoint(tmp_path / "w.safetensors"))
    assert isinstance(predictor, SinglePass)
    assert predictor.count == method_of(config).passes(config) == 1


class Constant(nn.Module):
    """The same means and log-variances in every pixel."""

    def __init__(self, *outputs):
        super().__init__()
        self.outputs = torch.tensor(outputs).reshape(1, -1, 1, 1)

    def forward(self, batch):
        return self.outputs.expand(len(batch), -1, *batch.shape[2:])


class Repeated:
    """Passes without dropout."""

    def __init__(self, model, count):
        self.count = count
        self._model = model

    def __call__(self, batch):
        return (Pass(self._model(batch)) for _ in range(self.count))


@pytest.mark.parametrize(("mean", "log_variance"), [(0.5, 0.0), (2.0, 2.0), (-1.0, 3.0)])
def test_the_mean_over_noise_is_the_integral(mean, log_variance):
    """Two noisy logits differ by a normal variable with the sum of their variances."""
    model = Constant(0.0, mean, log_variance, log_variance)
    predictor = NoisyLogits(Repeated(model, 400), classes=2)
    found = probabilities(predictor, images(1))
    expected = expected_probability(mean, (2 * torch.tensor(log_variance).exp()).sqrt().item())
    assert found[0, 1, 0, 0].item() == pytest.approx(expected, abs=0.01)
    assert (found == found[:, :, :1, :1]).all()  # equal pixels, equal confidence


def test_without_variance_noise_does_nothing():
    model = Constant(0.2, 1.0, -200.0, -200.0)
    predictor = NoisyLogits(Repeated(model, 8), classes=2)
    found = predict_batch(predictor, images(1)).logits
    expected = torch.tensor([0.2, 1.0]).log_softmax(dim=0)
    torch.testing.assert_close(found[0, :, 3, 4], expected)


def test_noise_lowers_the_confidence():
    quiet, noisy = Constant(0.0, 3.0, -9.0, -9.0), Constant(0.0, 3.0, 2.0, 2.0)
    confidence = [
        probabilities(NoisyLogits(Repeated(model, 50), classes=2), images(1)).max().item()
        for model in (quiet, noisy)
    ]
    assert confidence[1] < confidence[0] - 0.1
