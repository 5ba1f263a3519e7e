"""Weights for use: everything needed comes back, anything else is refused."""

import hashlib
import json
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from segconf.calibration.calibrators import TemperatureScaling
from segconf.checkpoints.weight_files import snapshot_file, write_snapshot
from segconf.checkpoints.weights import (
    load_checkpoint,
    save_checkpoint,
    store_calibrator,
    weights_hash,
)
from segconf.config.loading import load_config
from segconf.errors import CheckpointError
from segconf.models.unet import build_unet


@pytest.fixture
def config():
    return load_config(
        flags={"model.encoder": "tu-test_resnet", "model.encoder_weights": "none"},
        overrides=["training.seed=7", "data.size=[64, 32]"],
    )


def test_round_trip(tmp_path, config):
    torch.manual_seed(1)
    model = build_unet(config.model)
    model(torch.randn(4, 3, 32, 32))  # BatchNorm statistics that are not those of a new network
    save_checkpoint(tmp_path / "best.safetensors", model.state_dict(), config, temperature=1.7)
    images = torch.randn(2, 3, 32, 32)

    for path in (tmp_path, tmp_path / "best.safetensors"):
        checkpoint = load_checkpoint(path)
        assert checkpoint.config == config
        assert checkpoint.temperature == 1.7
        assert not checkpoint.model.training
        with torch.no_grad():
            assert torch.equal(checkpoint.model(images), model.eval()(images))


def test_the_encoder_weights_of_the_training_are_not_needed(tmp_path, config):
    model = build_unet(config.model)
    elsewhere = config.model.model_copy(update={"encoder_weights": "gone.pth"})
    moved = config.model_copy(update={"model": elsewhere})
    save_checkpoint(tmp_path / "w.safetensors", model.state_dict(), moved)
    assert load_checkpoint(tmp_path / "w.safetensors").config == moved


def test_a_failed_write_keeps_the_file_before(tmp_path, config, monkeypatch):
    path = tmp_path / "best.safetensors"
    save_checkpoint(path, {"a": torch.zeros(2)}, config)
    before = path.read_bytes()
    monkeypatch.setattr("segconf.checkpoints.weight_files.save_file", lambda *_a, **_k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_checkpoint(path, {"a": torch.ones(2)}, config)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_says_what_to_give(tmp_path):
    with pytest.raises(CheckpointError, match=r"best.safetensors: no such file. Give a run folder"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("kept", [0, 7, 100, 100_000])
def test_a_damaged_file(tmp_path, config, kept):
    path = tmp_path / "w.safetensors"
    save_checkpoint(path, build_unet(config.model).state_dict(), config)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load_checkpoint(path)


def test_weights_of_another_architecture(tmp_path, config):
    other = config.model.model_copy(update={"encoder": "tu-test_efficientnet"})
    path = tmp_path / "w.safetensors"
    save_checkpoint(path, build_unet(other).state_dict(), config)
    with pytest.raises(CheckpointError, match="not those of the tu-test_resnet network"):
        load_checkpoint(path)


@pytest.mark.parametrize("metadata", [None, {"config": "{"}, {"config": "{}"}, "unknown key"])
def test_a_file_of_another_program_or_version(tmp_path, config, metadata):
    path = tmp_path / "w.safetensors"
    if metadata == "unknown key":
        values = config.model_dump(mode="json") | {"future": {}}
        metadata = {"config": json.dumps(values), "temperature": "1.0"}
    save_file({"a": torch.zeros(2)}, path, metadata=metadata)
    with pytest.raises(CheckpointError, match="not written by this version"):
        load_checkpoint(path)


def test_weights_are_plain_safetensors(tmp_path, config):
    save_checkpoint(tmp_path / "w.safetensors", {"a": torch.arange(3.0)}, config)
    assert load_file(tmp_path / "w.safetensors")["a"].tolist() == [0.0, 1.0, 2.0]


def by_hand(file):
    """SHA-256 of names, types, shapes and bytes, read by another reader of the format."""
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    types = {"F32": "torch.float32", "F16": "torch.float16", "I64": "torch.int64"}
    digest = hashlib.sha256()
    for name, about in sorted(header.items()):
        start, stop = about["data_offsets"]
        digest.update(f"{name} {types[about['dtype']]} {tuple(about['shape'])}\n".encode())
        digest.update(content[8 + size + start : 8 + size + stop])
    return digest.hexdigest()


def test_the_hash_is_that_of_the_tensors_alone(tmp_path, config):
    weights = build_unet(config.model).state_dict()
    best = tmp_path / "best.safetensors"
    save_checkpoint(best, weights, config)
    found = weights_hash(tmp_path)
    assert found == by_hand(best)
    assert weights_hash(best) == found
    store_calibrator(tmp_path, TemperatureScaling(temperature=2.5))
    assert weights_hash(tmp_path) == found
    name = next(iter(weights))
    weights[name] = weights[name] + 1
    save_checkpoint(best, weights, config)
    assert weights_hash(tmp_path) != found
    with pytest.raises(CheckpointError, match="no such file"):
        weights_hash(tmp_path / "nowhere")


@pytest.mark.parametrize("method", ["ensemble", "softmax"])
def test_members_belong_to_the_hash_of_an_ensemble(tmp_path, method):
    changes = {"training.method": method, "training.members": 2}
    config = load_config(flags=changes if method == "ensemble" else {"training.method": method})
    names = ("best.safetensors", "members/0/best.safetensors", "members/1/best.safetensors")
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        values = {"b": torch.full((2, 3), number).half(), "a": torch.tensor(number)}
        save_checkpoint(tmp_path / name, values, config)
    hashes = [by_hand(tmp_path / name) for name in names]
    together = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    assert weights_hash(tmp_path) == (together if method == "ensemble" else hashes[0])


def test_the_hash_by_hand(tmp_path, config):
    weights = {"b": torch.tensor(7), "a": torch.tensor([[1.0, -2.5]])}
    save_checkpoint(tmp_path / "best.safetensors", weights, config)
    expected = hashlib.sha256(
        b"a torch.float32 (1, 2)\n"
        + struct.pack("<2f", 1.0, -2.5)
        + b"b torch.int64 ()\n"
        + struct.pack("<q", 7)
    )
    assert weights_hash(tmp_path) == expected.hexdigest()
    assert weights_hash(tmp_path / "best.safetensors") == expected.hexdigest()


def test_the_hash_is_that_of_the_weights_and_of_nothing_else(tmp_path, config):
    weights = {"kernel": torch.arange(6.0).reshape(2, 3), "seen": torch.tensor(3)}

    def hash_of(tensors, experiment=config):
        save_checkpoint(tmp_path / "best.safetensors", tensors, experiment)
        return weights_hash(tmp_path)

    first = hash_of(weights)
    store_calibrator(tmp_path, TemperatureScaling(temperature=1.7))
    assert load_file(tmp_path / "best.safetensors").keys() == weights.keys()
    assert weights_hash(tmp_path) == first
    reseeded = config.training.model_copy(update={"seed": 8})
    assert hash_of(weights, config.model_copy(update={"training": reseeded})) == first
    assert hash_of(dict(reversed(weights.items()))) == first
    kernel = weights["kernel"].clone()
    kernel[1, 2] = kernel[1, 2].nextafter(torch.tensor(9.0))  # one bit of one weight
    others = [
        weights | {"kernel": kernel},
        weights | {"kernel": weights["kernel"].reshape(3, 2)},
        weights | {"kernel": weights["kernel"].view(torch.int32)},
        weights | {"seen": torch.tensor(4)},
        weights | {"more": torch.zeros(0)},
        {"core": weights["kernel"], "seen": weights["seen"]},
    ]
    assert len({first, *(hash_of(tensors) for tensors in others)}) == 7


def test_the_hash_of_a_method_with_several_files_covers_all_of_them(tmp_path, config):
    training = config.training.model_copy(update={"method": "aes", "epochs": 2})
    save_checkpoint(
        tmp_path / "best.safetensors",
        {"kernel": torch.zeros(2, 2)},
        config.model_copy(update={"training": training}),
    )
    for epoch in (1, 2):
        write_snapshot(
            snapshot_file(tmp_path, epoch), {"kernel": torch.full((2, 2), epoch)}, "float32"
        )

    def of_one(value, kind, code):
        return hashlib.sha256(
            f"kernel torch.{kind} (2, 2)\n".encode() + struct.pack(f"<4{code}", *[value] * 4)
        ).hexdigest()

    parts = [of_one(0.0, "float32", "f"), *(of_one(value, "int64", "q") for value in (1, 2))]
    expected = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    assert weights_hash(tmp_path) == expected
    write_snapshot(snapshot_file(tmp_path, 1), {"kernel": torch.full((2, 2), 3)}, "float32")
    assert weights_hash(tmp_path) != expected
