"""`segconf surrogates` on tiny runs that kept snapshots."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

from segconf.comparison.surrogates import SURROGATES, evaluate_surrogates
from segconf.errors import TrainingError
from segconf.metrics.streaming import ConfidenceMetrics
from segconf_cli.main import app
from tests.training_runs import TinyNetwork, train_tiny, use_network


@pytest.fixture
def runs(folder_dataset, tmp_path, monkeypatch):
    """A softmax and a consistency run of three epochs on 4 of 8 masks."""
    use_network(monkeypatch)
    for method in ("softmax", "consistency"):
        changes = {"training__method": method, "training__epochs": 3, "training__snapshots": 3}
        train_tiny(folder_dataset, tmp_path / method, **changes)
    return tmp_path / "softmax", tmp_path / "consistency"


def test_command_writes_numbers_curves_and_the_gap(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["surrogates", *map(str, runs), "--out", str(out)])
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((out / "surrogates.csv").read_text().splitlines()))
    assert [(row["run"], row["epoch"], row["surrogate"]) for row in rows] == [
        (run, str(epoch), name)
        for run in ("softmax", "consistency")
        for epoch in (1, 2, 3)
        for name in SURROGATES
    ]
    # All masks of the training images are looked at, also those hidden from the training.
    assert {row["images"] for row in rows} == {"8"}
    last = {row["surrogate"]: float(row["aurc"]) for row in rows[12:18]}
    gap = f"{1e3 * abs(last['softmax'] - last['consistency']):.2f}"
    assert gap in (out / "surrogates.md").read_text().splitlines()[2]
    assert gap in result.stdout
    # A narrow window cuts no heading and no number.
    assert "\u2026" not in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines()[:-1])
    with Image.open(out / "surrogates.png") as picture:
        assert picture.size == (1100, 792)  # two rows of panels


def test_softmax_is_that_of_the_snapshot(runs, folder_dataset):
    network = TinyNetwork().eval()
    weights = load_file(runs[0] / "snapshots/epoch-0002.safetensors")
    network.load_state_dict(weights)
    metrics = ConfidenceMetrics(num_classes=2)
    for path in sorted((folder_dataset / "images").iterdir()):
        pixels = (np.asarray(Image.open(path)) / 255 - (0.485, 0.456, 0.406)) / (
            *(0.229, 0.224, 0.225),
        )
        batch = torch.from_numpy(pixels.transpose(2, 0, 1)[None]).float()
        mask = np.asarray(Image.open(folder_dataset / "masks" / path.name)) > 0
        with torch.no_grad():
            metrics.update(network(batch), mask[None].astype(np.uint8))
    found = evaluate_surrogates(runs[0], device="cpu").scores[1]
    assert found.epoch == 2
    assert found.aurc["softmax"] == pytest.approx(metrics.compute()["aurc"], rel=1e-4)


def test_images_without_masks_are_left_out_and_runs_without_snapshots_refused(
    runs, folder_dataset, tmp_path
):
    (folder_dataset / "masks/case_003.png").unlink()
    assert evaluate_surrogates(runs[1], device="cpu").images == 7
    train_tiny(folder_dataset, tmp_path / "bare", training__epochs=1)
    with pytest.raises(TrainingError, match=r"training\.snapshots = N"):
        evaluate_surrogates(tmp_path / "bare")
