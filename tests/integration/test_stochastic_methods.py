"""MC dropout and aleatoric uncertainty, from the training to the maps."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from segconf.calibration.calibrate import calibrate
from segconf.config.loading import load_config
from segconf.data.training_set import Batch
from segconf.errors import TrainingError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.inference.model import load_model
from segconf.inference.torch_model import TorchModel
from segconf.processes import ProcessGroup
from segconf.training.history_maps import history_maps
from segconf.training.train import train
from segconf.training.validation import validate
from segconf_cli.main import app
from tests.training_runs import Interrupter, contents, differences

METHODS = pytest.mark.parametrize("method", ["mcdropout", "aleatoric"])


def settings(method):
    return load_config(
        flags={
            "data.size": [32, 32],
            "data.labeled": 4,
            "model.encoder": "tu-test_resnet",
            "model.encoder_weights": "none",
            "training.method": method,
            "training.epochs": 2,
            "training.batch_labeled": 2,
            "training.learning_rate": 0.003,
            "training.device": "cpu",
            "inference.passes": 5,
            "loss.noise_samples": 4,
        }
    )


def run(dataset, folder, method, **options):
    torch.set_num_threads(1)
    config = settings(method)
    return train(config, dataset=str(dataset), folder=folder, calibrate=False, **options)


def test_calibrating_runs_every_image_through_the_passes_once(
    folder_dataset, tmp_path, monkeypatch
):
    folder, seen = tmp_path / "run", []
    run(folder_dataset, folder, "mcdropout")
    before = evaluate(folder, EvaluationOptions("val", device="cpu")).report.metrics["all"]
    whole = TorchModel.grid_logits

    def counted(model, images):
        seen.append(len(images))
        return whole(model, images)

    monkeypatch.setattr(TorchModel, "grid_logits", counted)
    found = calibrate(folder, device="cpu")
    assert sum(seen) == found.calibration.temperature.images == 4
    assert found.fit.passes > 1
    assert found.before["nll"] == before["strict"]["nll"]
    assert found.after["nll"] == pytest.approx(found.fit.nll, rel=1e-5)


@METHODS
def test_from_training_to_maps(folder_dataset, tmp_path, method):
    folder = tmp_path / "run"
    result = run(folder_dataset, folder, method)
    terms = [summary.terms["supervised"] for summary in result.summaries]
    assert terms[-1] < terms[0]
    assert load_config(folder / "config.yaml") == settings(method)
    assert not list((folder / "history").glob("*.npy"))
    with pytest.raises(TrainingError, match=f"the method {method} keeps no history"):
        history_maps(folder)

    report = evaluate(folder, EvaluationOptions("test", device="cpu")).report
    assert report.about["method"] == method

    images = folder_dataset / "test" / "images"
    arguments = ["predict", str(images), "--out", str(tmp_path / "maps"), "--device", "cpu"]
    outcome = CliRunner().invoke(app, [*arguments, "--checkpoint", str(folder)])
    assert outcome.exit_code == 0, outcome.output
    record = json.loads((tmp_path / "maps/run.json").read_text())
    assert (record["model"]["method"], record["model"]["passes"]) == (method, 5)
    model = load_model(folder, device="cpu")
    assert model.predictor.count == 5
    negative_logs = []
    for path in images.iterdir():
        prediction = model.predict(path)
        saved = np.asarray(Image.open(tmp_path / "maps/confidence" / path.name)) / 65535
        assert np.abs(prediction.confidence - saved).max() <= 1 / 65535
        mask = np.asarray(Image.open(folder_dataset / "test/masks" / path.name)) // 255
        chance = np.take_along_axis(prediction.probabilities, mask[None].astype(int), axis=0)
        negative_logs.append(-np.log(chance).mean())
    # Evaluated in a batch, predicted one by one: the same channels were dropped, the same noise.
    nll = report.metrics["all"]["strict"]["nll"]
    assert nll == pytest.approx(np.mean(negative_logs), rel=1e-3)


@METHODS
def test_same_seed_same_run_even_if_it_is_interrupted(folder_dataset, tmp_path, method):
    run(folder_dataset, tmp_path / "one", method)
    with pytest.raises(KeyboardInterrupt):
        run(folder_dataset, tmp_path / "cut", method, listener=Interrupter(1, 1))
    run(folder_dataset, tmp_path / "cut", method, resume=True)
    assert differences(contents(tmp_path / "one"), contents(tmp_path / "cut")) == []


class MeanAndVariance(nn.Module):
    """Logits (0, red), then log-variances that would turn every prediction round."""

    def forward(self, images):
        red = images[:, :1]
        return torch.cat([0 * red, red, 50 + 0 * red, -50 + 0 * red], dim=1)


def test_validation_takes_the_mean_logits():
    images = torch.tensor([[2.0, -1.0, 3.0, -0.5]]).reshape(1, 1, 2, 2).repeat(1, 3, 1, 1)
    masks = torch.tensor([[[1, 0], [0, 0]]], dtype=torch.uint8)
    batch = Batch(torch.tensor([0]), images, masks)
    device = torch.device("cpu")
    scores = validate(MeanAndVariance(), [batch], classes=2, device=device, group=ProcessGroup())
    # Predicted (1, 0, 1, 0): IoU 2/3 of class 0 and 1/2 of class 1.
    assert scores.miou == pytest.approx((2 / 3 + 1 / 2) / 2)
    chances = [1 / (1 + math.exp(-value)) for value in (2.0, 1.0, -3.0, 0.5)]
    assert scores.nll == pytest.approx(-sum(math.log(chance) for chance in chances) / 4)
