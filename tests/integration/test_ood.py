"""The out-of-distribution detector: fitted after training, exact after a crash, used by predict."""

import csv
import json
import os

import nibabel
import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

from segconf.calibration.calibrate import calibrate
from segconf.checkpoints.weights import weights_hash
from segconf.config.loading import load_config
from segconf.data.cases import Case
from segconf.errors import CheckpointError, DataError
from segconf.images.io import read_image
from segconf.images.recompression import Recompression
from segconf.inference.model import load_model
from segconf.inference.predictors import WeightsPredictor
from segconf.models.encoders import encoder_normalization
from segconf.models.unet import build_unet
from segconf.ood.detector import Described, OODDetector, load_detector, save_detector
from segconf.ood.features import FeatureExtractor, describe_cases, pooled_features
from segconf.processes import ProcessGroup
from segconf.results.rows import OUT_OF_DISTRIBUTION
from segconf_cli.main import app
from tests.conftest import write_folder
from tests.ports import meet
from tests.training_runs import Interrupter, train_tiny
from tests.untrained_runs import untrained_run

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DETECTOR = "ood.safetensors"


class TinyEncoder(nn.Module):
    """Two stages behind the input, as the encoders of a UNet give them."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 5, 3, stride=2, padding=1)

    def forward(self, images):
        stage = torch.relu(self.norm(self.first(images)))
        return [images, stage, self.second(stage)]


class SeeingNetwork(nn.Module):
    """A network with an encoder."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = TinyEncoder(), nn.Conv2d(4, 2, 1)

    def forward(self, images):
        return self.head(self.encoder(images)[1])


def train_seeing(dataset, folder, **options):
    return train_tiny(dataset, folder, network=SeeingNetwork, **options)


def encoded(network, pictures, size):
    """Features of pictures, resized to a height and width, one at a time."""
    rows = []
    for picture in pictures:
        shown = picture.resize(size[::-1], Image.Resampling.BILINEAR)
        pixels = (np.array(shown) / 255 - MEAN) / STD
        with torch.no_grad():
            maps = network.encoder(torch.from_numpy(pixels.transpose(2, 0, 1)[None]).float())
        rows.append(pooled_features(maps)[0])
    return torch.stack(rows)


def described(network, paths, size):
    """Features (N, 2, F): of the files, and of what another archive would have kept of them."""
    pictures = [Image.open(path) for path in paths]
    others = []
    for row, picture in enumerate(pictures):
        # Discs of 32 x 32 pixels: nothing coarser is to be expected.
        draw = Recompression.draw((32, 32), (32, 32), np.random.default_rng((0, row)))
        kept = draw.apply(np.array(picture).transpose(2, 0, 1))
        others.append(Image.fromarray(kept.transpose(1, 2, 0)))
    return torch.stack([encoded(network, part, size) for part in (pictures, others)], dim=1)


def saved_network(run):
    """The network with the saved weights, in evaluation mode."""
    model = SeeingNetwork().eval()
    model.load_state_dict(load_file(run / "best.safetensors"))
    return model


def assert_detector_of(run, dataset, size=(128, 160)):
    """The file beside the weights is what their features of all images give."""
    parts = [sorted((dataset / part).iterdir()) for part in ("images", "val/images")]
    network = saved_network(run)
    training, validation = (described(network, part, size) for part in parts)
    expected = OODDetector.fit(training, validation, Described(size, (32, 32), (4, 5)))
    found = load_detector(run, weights_hash(run))
    assert (found.grid, found.band) == (size, (32, 32))
    assert found.validation_images == len(validation)
    assert found.mean == pytest.approx(expected.mean, rel=1e-3, abs=1e-3)
    for part in (training, validation):
        rows = part.flatten(0, 1)
        assert found.score(rows) == pytest.approx(expected.score(rows), rel=1e-3)
    assert found.threshold == pytest.approx(expected.threshold, rel=1e-3)


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_the_detector_belongs_to_the_saved_weights(folder_dataset, tmp_path, decay):
    run = tmp_path / "run"
    train_seeing(folder_dataset, run, training__ema_decay=decay, training__learning_rate=0.1)
    assert_detector_of(run, folder_dataset)


def test_the_detector_is_the_same_after_an_interruption(folder_dataset, tmp_path):
    changes = {"data__labeled": 6, "training__learning_rate": 0.003}
    result = train_seeing(folder_dataset, tmp_path / "whole", **changes)
    assert result.best_epoch > 1
    with pytest.raises(KeyboardInterrupt):
        train_seeing(folder_dataset, tmp_path / "run", listener=Interrupter(1, 1), **changes)
    assert not (tmp_path / "run" / DETECTOR).exists()
    train_seeing(folder_dataset, tmp_path / "run", resume=True, **changes)
    whole, run = (tmp_path / name / DETECTOR for name in ("whole", "run"))
    assert whole.read_bytes() == run.read_bytes()


@pytest.mark.parametrize("method", ["softmax", "consistency"])
def test_best_weights_look_at_all_training_images_at_the_end(folder_dataset, tmp_path, method):
    changes = {"training__method": method, "training__learning_rate": 0.1}
    run = tmp_path / "run"
    # Averaged weights are kept, so those of the trained network are not the ones that count.
    train_seeing(folder_dataset, run, **changes)
    assert_detector_of(run, folder_dataset)
    before = (run / DETECTOR).read_bytes()
    (run / DETECTOR).unlink()  # as after an interruption of the sweep
    train_seeing(folder_dataset, run, resume=True, **changes)
    assert (run / DETECTOR).read_bytes() == before


def test_a_run_without_a_detector(folder_dataset, tmp_path):
    train_seeing(folder_dataset, tmp_path / "run", training__ood_detector=False)
    assert not (tmp_path / "run" / DETECTOR).exists()


def test_the_detector_of_older_weights_is_refused_and_replaced(folder_dataset, tmp_path):
    run = tmp_path / "run"
    train_seeing(folder_dataset, run, training__epochs=1, training__learning_rate=0.003)
    assert load_detector(run, weights_hash(run)) is not None
    changes = {"training__epochs": 4, "training__learning_rate": 0.003}
    with pytest.raises(KeyboardInterrupt):
        train_seeing(folder_dataset, run, resume=True, listener=Interrupter(3, 1), **changes)
    with pytest.raises(CheckpointError, match=rf"belongs to other weights.*train --resume {run}"):
        load_detector(run, weights_hash(run))
    train_seeing(folder_dataset, run, resume=True, **changes)
    assert_detector_of(run, folder_dataset)


def one_rank(rank, dataset, out):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    meet(rank, out / "port")
    train_seeing(dataset, out / "run", training__epochs=2)
    # Threads of the process group sometimes abort a process that ends while the others go on.
    os._exit(0)


def test_two_ranks_gather_the_features_of_all_images_in_order(tmp_path, monkeypatch):
    root = write_folder(tmp_path / "discs", 7)
    write_folder(root / "val", 3, first=100)
    write_folder(root / "test", 1, first=200)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    mp.spawn(one_rank, (root, tmp_path), nprocs=2)
    assert_detector_of(tmp_path / "run", root)


@pytest.fixture
def run(tmp_path):
    """Run of an untrained UNet on discs, with a detector on its own grid."""
    folder, network = untrained_run(tmp_path, training=12, validation=12, test=6)
    root = tmp_path / "discs"
    save_fitted(folder, network.eval(), root, (32, 32))
    return folder.path


def save_fitted(folder, network, root, size):
    """Leave the detector that the end of a training would, on a grid."""
    parts = [sorted((root / part).iterdir()) for part in ("images", "val/images")]
    features = (described(network, part, size) for part in parts)
    detector = OODDetector.fit(*features, Described(size, (32, 32), (64, 64, 64)))
    save_detector(folder.detector_file, detector, weights_hash(folder.path))


def stripes(folder, count=3):
    """Grey stripes: nothing like a disc on noise."""
    folder.mkdir()
    for number in range(count):
        pixels = np.zeros((32, 32), np.uint8)
        pixels[:, number % 2 :: 2] = 255
        Image.fromarray(pixels).save(folder / f"stripes{number}.png")
    return folder


def command(*arguments):
    arguments = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_predict_flags_a_planted_out_of_distribution_image_and_triage_refers_it(run, tmp_path):
    images = tmp_path / "new"
    images.mkdir()
    for path in (tmp_path / "discs/test/images").iterdir():
        (images / path.name).write_bytes(path.read_bytes())
    (images / "other.png").write_bytes(
        (stripes(tmp_path / "stripes", 1) / "stripes0.png").read_bytes()
    )
    maps = tmp_path / "maps"
    result = command("predict", images, "--out", maps, "--checkpoint", run, "--batch-size", "4")
    with (maps / "cases.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["case"]: row for row in csv.DictReader(file)}
    threshold = json.loads((maps / "run.json").read_text())["out_of_distribution"]["threshold"]
    flagged = {case for case, row in rows.items() if OUT_OF_DISTRIBUTION in row["flags"]}
    assert flagged == {c for c, row in rows.items() if float(row["ood_score"]) > threshold}
    assert "other" in flagged
    assert len(flagged) <= 2
    assert f"{len(flagged)} {'are' if len(flagged) > 1 else 'is'} out of dist" in result.stdout
    assert OUT_OF_DISTRIBUTION in (maps / "review.html").read_text(encoding="utf-8")
    one_by_one = load_model(run, device="cpu")
    for case, row in rows.items():
        image = one_by_one.read(images / f"{case}.png")
        inputs = one_by_one.network_input(image)
        score = one_by_one.grid_output(inputs.pixels, inputs.feature_pixels).ood_scores[0]
        assert float(row["ood_score"]) == pytest.approx(score, rel=1e-3)
    calibrate(run, scaling="none", target_dice=0.01, device="cpu")
    printed = command("triage", run, maps).stdout
    assert f"other: {OUT_OF_DISTRIBUTION}" in printed
    with (maps / "referrals.csv").open(encoding="utf-8", newline="") as file:
        referred = [row["case"] for row in csv.DictReader(file) if row["refer"] == "yes"]
    assert set(referred[: len(flagged)]) == flagged


@pytest.mark.parametrize("own_grid", [True, False])
def test_scores_are_those_of_the_features_on_their_grid(tmp_path, own_grid):
    folder, network = untrained_run(tmp_path, training=12, validation=12, test=3)
    root = tmp_path / "discs"
    size = folder.config().data.size if own_grid else (128, 160)
    save_fitted(folder, network.eval(), root, size)
    model = load_model(folder.path, device="cpu", batch_size=2)
    paths = sorted((root / "test/images").iterdir())
    images = [model.read(path) for path in paths]
    inputs = [model.network_input(image) for image in images]
    pixels = np.concatenate([one.pixels for one in inputs])
    assert all((one.feature_pixels is None) == own_grid for one in inputs)
    finer = None if own_grid else np.concatenate([one.feature_pixels for one in inputs])
    unlike = model.grid_output(pixels, finer).ood_scores
    expected = model.detector.score(encoded(network, map(Image.open, paths), size))
    assert unlike == pytest.approx(expected, rel=1e-3)
    # As for snapshots, whose passes are made by a copy of the network.
    model.predictor = WeightsPredictor(model.checkpoint.model, [model.checkpoint.path])
    assert model.grid_output(pixels, finer).ood_scores == pytest.approx(expected, rel=1e-3)
    folder.detector_file.unlink()
    bare = load_model(folder.path, device="cpu", batch_size=2)
    assert all(bare.network_input(image).feature_pixels is None for image in images)
    assert np.isnan(bare.grid_output(pixels, None).ood_scores).all()


def test_slices_of_a_volume_are_described_one_by_one(tmp_path):
    volume = np.random.default_rng(0).integers(0, 256, (40, 30, 3)).astype(np.uint8)
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), tmp_path / "volume.nii")
    changes = {"model.channels": 1, "model.encoder": "resnet18"}
    config = load_config(flags=changes | {"data.size": [32, 32], "data.intensity_window": [0, 255]})
    network = build_unet(config.model.model_copy(update={"encoder_weights": "none"}))
    cases = [Case(f"slice{index}", tmp_path / "volume.nii", None, index) for index in (2, 0)]
    seen = []
    extractor = FeatureExtractor.of(network.eval(), config, (128, 160), (30, 20))
    found = describe_cases(extractor, cases, ProcessGroup(), lambda *done: seen.append(done))
    mean, std = encoder_normalization("resnet18", 1)
    for row, index in zip(found, (2, 0), strict=True):
        pixels = read_image(tmp_path / "volume.nii", channels=1, window=(0, 255)).pixels[0, index]
        reduced = Image.fromarray(pixels).resize((20, 30), Image.Resampling.BILINEAR)
        picture = reduced.resize((160, 128), Image.Resampling.BILINEAR)
        inputs = (np.array(picture) / 255 - mean[0]) / std[0]
        with torch.no_grad():
            maps = network.eval().encoder(torch.from_numpy(inputs[None, None]).float())
        torch.testing.assert_close(row[0], pooled_features(maps)[0], rtol=1e-4, atol=1e-5)
        assert not torch.equal(row[0], row[1])  # the second view is recompressed
    assert seen == [(2, 2)]


def test_evaluate_reports_out_of_distribution_images(run, tmp_path):
    result = command("evaluate", run, "--ood", stripes(tmp_path / "stripes"), "--device", "cpu")
    content = json.loads((run / "evaluation/test/ood.json").read_text())
    assert content["metrics"]["features"] == {"auroc": 1.0, "detection_error": 0.0, "fpr95": 0.0}
    assert set(content["metrics"]) == {"features", "confidence"}
    assert content["flagged"]["others"] == 1.0
    assert (content["images"], content["others"]) == (6, 3)
    assert "predict would flag 100.0% of the out-of-distribution images" in result.stdout
    assert (run / "evaluation/test/ood.png").stat().st_size > 5000
    (run / DETECTOR).unlink()
    result = command("evaluate", run, "--ood", tmp_path / "stripes", "--device", "cpu")
    assert "no out-of-distribution detector" in result.output
    assert set(json.loads((run / "evaluation/test/ood.json").read_text())["metrics"]) == {
        "confidence"
    }


def test_a_folder_without_other_images_is_refused_before_anything_is_measured(run, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="no image found"):
        command("evaluate", run, "--ood", empty, "--out", tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_own_images_and_others_are_read_alike(tmp_path):
    # The others are copies of the own images: JPEGs of fine noise, which a decoder that reduces
    # them on the way renders otherwise.
    folder, network = untrained_run(tmp_path, training=12, validation=12, test=6)
    root = tmp_path / "discs"
    save_fitted(folder, network.eval(), root, (128, 160))
    generator = np.random.default_rng(0)
    copies = tmp_path / "copies"
    copies.mkdir()
    for path in sorted((root / "test/images").iterdir()):
        noise = generator.integers(0, 256, (128, 128, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path.with_suffix(".jpg"))
        Image.fromarray(np.zeros((128, 128), np.uint8)).save(root / "test/masks" / path.name)
        path.unlink()
        copy = path.with_suffix(".jpg")
        (copies / copy.name).write_bytes(copy.read_bytes())
    command("evaluate", folder.path, "--ood", copies, "--device", "cpu")
    metrics = json.loads((folder.path / "evaluation/test/ood.json").read_text())["metrics"]
    assert {name: values["auroc"] for name, values in metrics.items()} == {
        "features": 0.5,
        "confidence": 0.5,
    }


def test_detector_file_is_small_and_plain(folder_dataset, tmp_path):
    run = tmp_path / "run"
    train_seeing(folder_dataset, run, training__epochs=1)
    with safe_open(run / DETECTOR, framework="pt") as file:
        assert set(file.keys()) == {
            *("mean", "whitening", "mean.0", "whitening.0", "mean.1", "whitening.1"),
            *("grid", "band", "threshold", "false_alarm_rate", "validation_images"),
        }
        assert file.metadata() == {"format": "segconf ood 5", "weights_sha256": weights_hash(run)}
        # Two energies in each of the 4 + 5 directions of both stages, not one row per image.
        assert file.get_tensor("whitening").shape == (18, 18)
        assert file.get_tensor("whitening").dtype == torch.float32
        assert file.get_tensor("grid").tolist() == [128, 160]
        assert file.get_tensor("band").tolist() == [32, 32]
