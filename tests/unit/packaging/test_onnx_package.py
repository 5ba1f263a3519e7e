"""An ONNX file predicts what its run predicts, with and without segconf."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import PIL.Image
import pytest

from segconf.calibration.calibrators import EnsembleScaling, VectorScaling
from segconf.checkpoints.weights import store_calibrator
from segconf.errors import CheckpointError, ConfigError
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.packaging.package import compare, package_onnx
from tests.packaged_runs import calibrated_run
from tests.tiny_models import disc, write_checkpoint, write_picture

SIZES = [(70, 110), (201, 150), (32, 64), (20, 33)]
README = Path(__file__).resolve().parents[3] / "README.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return calibrated_run(tmp_path_factory.mktemp("packaged") / "run")


@pytest.fixture(scope="module")
def file(run):
    return package_onnx(run, run.parent / "model.onnx").path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for number, (height, width) in enumerate(SIZES):
        write_picture(folder / f"{number}.png", disc(height, width, seed=number))
    return folder


def close(predicted, reference):
    """The same mask and confidence, within what rounding explains."""
    assert (predicted[0] == reference.mask).mean() >= 0.9999
    assert np.abs(predicted[1] - reference.confidence).max() < 1e-3


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_the_graph_alone_predicts_what_the_run_predicts(run, file, pictures, number):
    reference = load_model(run, device="cpu").predict(pictures / f"{number}.png")
    pixels = np.asarray(PIL.Image.open(pictures / f"{number}.png"))
    session = onnxruntime.InferenceSession(file)

    outputs = session.run(["mask", "confidence", "probabilities"], {"image": pixels[None]})

    mask, confidence, probabilities = (output[0] for output in outputs)
    close((mask, confidence), reference)
    assert mask.dtype == np.uint8
    np.testing.assert_allclose(probabilities, reference.probabilities, atol=1e-3)


def test_a_batch_is_predicted_image_by_image(file, pictures):
    pixels = np.asarray(PIL.Image.open(pictures / "0.png"))
    batch = np.stack([pixels, pixels[::-1], pixels[:, ::-1]])
    session = onnxruntime.InferenceSession(file)

    together = session.run(["probabilities"], {"image": batch})[0]

    for image, found in zip(batch, together, strict=True):
        alone = session.run(["probabilities"], {"image": image[None]})[0][0]
        np.testing.assert_allclose(found, alone, atol=1e-5)


def test_the_loaded_file_is_a_model_like_the_run(run, file, pictures):
    own, packaged = load_model(run, device="cpu"), load_model(file, device="cpu")

    assert packaged.scale == own.scale
    assert packaged.scale.shaded == 0.4321
    assert packaged.temperature == 1.7
    assert packaged.weights_sha256 == own.weights_sha256
    assert packaged.detector.threshold == own.detector.threshold
    for path in sorted(pictures.iterdir()):
        reference, found = own.predict(path), packaged.predict(path)
        close((found.mask, found.confidence), reference)
        scores = []
        for model in (packaged, own):
            inputs = model.network_input(model.read(path))
            output = model.grid_output(inputs.pixels, inputs.feature_pixels)
            scores.append(output.ood_scores)
        np.testing.assert_allclose(*scores, rtol=1e-3)


def test_the_score_of_the_graph_is_that_of_the_detector(run, file, pictures):
    own = load_model(run, device="cpu")
    pixels = np.asarray(PIL.Image.open(pictures / "1.png"))
    inputs = own.network_input(own.read(pictures / "1.png"))
    expected = own.grid_output(inputs.pixels, inputs.feature_pixels).ood_scores
    found = onnxruntime.InferenceSession(file).run(["ood_score"], {"image": pixels[None]})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(
    "calibrator",
    [
        EnsembleScaling(temperature=2.5, weights=(0.5, 0.3, 0.2)),
        VectorScaling(scales=(0.5, 1.5, 1.0), biases=(0.1, -0.2, 0.3)),
    ],
    ids=["ets", "vector"],
)
def test_every_calibrator_is_in_the_graph(tmp_path, pictures, calibrator):
    own = calibrated_run(tmp_path / "run", grid=(32, 64))  # that of the network: one export
    store_calibrator(own, calibrator)
    packaged = package_onnx(own, tmp_path / "model.onnx").path
    model, found = load_model(own, device="cpu"), load_model(packaged, device="cpu")
    assert found.scaling == model.scaling == calibrator.kind
    assert found.temperature == calibrator.temperature
    picture = sorted(pictures.iterdir())[0]
    close((found.predict(picture).mask, found.predict(picture).confidence), model.predict(picture))
    pixels = model.network_input(model.read(picture)).pixels
    np.testing.assert_allclose(
        found.grid_logits(pixels), model.grid_logits(pixels), rtol=1e-3, atol=1e-3
    )


def test_metadata_says_what_it_is(run, file):
    metadata = {entry.key: entry.value for entry in onnx.load(file).metadata_props}

    assert metadata["format"] == "segconf onnx 1"
    assert metadata["weights_sha256"] == load_model(run, device="cpu").weights_sha256
    assert json.loads(metadata["class_names"]) == ["background", "class 1", "class 2"]
    assert float(metadata["confidence_threshold"]) == 0.4321
    assert float(metadata["temperature"]) == 1.7
    assert metadata["licence"] == "not stated"
    assert "not a medical device" in metadata["model_card"]
    assert json.loads(metadata["config"])["data"]["size"] == [32, 64]


def test_constants_are_stored_once_and_kernels_are_final(run, file):
    graph = onnx.load(file).graph
    weights = sum(
        value.numel() for value in load_model(run, device="cpu").checkpoint.model.parameters()
    )
    stored = sum(np.prod(one.dims) for one in graph.initializer if one.data_type == 1)
    # Folded kernels have 16 weights instead of 9, and the detector's encoder shares the others.
    assert stored < 1.2 * weights
    operators = {node.op_type for node in graph.node}
    assert "BatchNormalization" not in operators


def test_predict_runs_it_without_torch(run, file, pictures, tmp_path):
    code = (
        "import sys; from segconf_cli.main import app\n"
        f"app(['predict', {str(pictures)!r}, '--out', {str(tmp_path / 'onnx')!r}, '--checkpoint', "
        f"{str(file)!r}], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    predict(run, pictures, tmp_path / "torch")

    for path in sorted((tmp_path / "torch" / "masks").iterdir()):
        masks, maps = (
            [
                np.asarray(PIL.Image.open(tmp_path / kind / name / path.name)).astype(float)
                for kind in ("onnx", "torch")
            ]
            for name in ("masks", "confidence")
        )
        assert (masks[0] == masks[1]).mean() >= 0.9999
        assert np.abs(maps[0] - maps[1]).max() < 65535 * 1e-3
    rows = [
        list(csv.DictReader((tmp_path / kind / "cases.csv").read_text("utf-8").splitlines()))
        for kind in ("onnx", "torch")
    ]
    assert [row["flags"] for row in rows[0]] == [row["flags"] for row in rows[1]]
    assert len(rows[0]) == len(SIZES)
    record = json.loads((tmp_path / "onnx" / "run.json").read_text(encoding="utf-8"))
    assert record["confidence"]["threshold"] == 0.4321
    assert "onnxruntime" in record["versions"]


def test_the_readme_uses_the_file_without_segconf(run, file, pictures, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    (code,) = (block for block in blocks if "onnxruntime" in block)
    assert "segconf" not in re.sub(r"#.*", "", code)
    assert len(code.splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").symlink_to(file)
    PIL.Image.open(pictures / "0.png").save("image.jpg", quality=95)

    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own text

    reference = load_model(run, device="cpu").predict("image.jpg")
    saved = (np.asarray(PIL.Image.open(name)) for name in ("mask.png", "confidence.png"))
    mask, levels = saved
    assert (mask == reference.mask).mean() >= 0.9999
    np.testing.assert_allclose(levels / 65535, reference.confidence, atol=1e-3)


@pytest.mark.slow
def test_an_ensemble_is_one_graph(tmp_path, pictures):
    run = calibrated_run(tmp_path / "run", method="ensemble", members=2, grid=(32, 64))
    file = package_onnx(run, tmp_path / "model.onnx").path
    own, packaged = load_model(run, device="cpu"), load_model(file, device="cpu")

    assert own.passes == 2
    reference, found = (one.predict(pictures / "0.png") for one in (own, packaged))
    close((found.mask, found.confidence), reference)
    inputs = own.network_input(own.read(pictures / "0.png"))
    assert inputs.feature_pixels is None
    np.testing.assert_allclose(
        packaged.grid_output(inputs.pixels, None).ood_scores,
        own.grid_output(inputs.pixels, None).ood_scores,
        rtol=1e-4,
    )


@pytest.mark.parametrize("method", ["mcdropout", "aleatoric"])
def test_methods_of_several_passes_are_refused(tmp_path, method):
    from segconf.checkpoints.weights import save_checkpoint
    from segconf.config.schema import ExperimentConfig
    from segconf.methods.method import method_of

    config = ExperimentConfig.model_validate(
        {
            "data": {"size": [32, 32]},
            "model": {"encoder": "resnet18", "encoder_weights": "none"},
            "training": {"method": method},
        }
    )
    network = method_of(config).build(config.model)
    (tmp_path / "run").mkdir()
    save_checkpoint(tmp_path / "run/best.safetensors", network.state_dict(), config)
    with pytest.raises(ConfigError, match=f"the method {method} takes 50 passes"):
        package_onnx(tmp_path / "run", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_other_files_are_refused_by_name(tmp_path, file):
    (tmp_path / "broken.onnx").write_bytes(file.read_bytes()[:5000])
    with pytest.raises(CheckpointError, match=r"broken\.onnx: ONNX Runtime cannot read it"):
        load_model(tmp_path / "broken.onnx")
    foreign = onnx.load(file)
    del foreign.metadata_props[:]
    onnx.save(foreign, tmp_path / "foreign.onnx")
    with pytest.raises(CheckpointError, match=r"foreign\.onnx: was not written by this version"):
        load_model(tmp_path / "foreign.onnx")
    with pytest.raises(ConfigError, match=r"an ONNX file is called NAME\.onnx"):
        package_onnx(write_checkpoint(tmp_path / "w.safetensors"), tmp_path / "model.bin")


def test_a_file_of_other_weights_is_told_from_the_run(tmp_path, file):
    other = calibrated_run(tmp_path / "other", seed=1)
    with pytest.raises(CheckpointError, match="the packaged network predicts other probabilities"):
        compare(load_model(other, device="cpu"), load_model(file, device="cpu"))
