"""When snapshots are taken, and what their files hold."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from segconf.checkpoints.weight_files import (
    kept_snapshots,
    load_into,
    read_weights,
    remove_later,
    snapshot_bytes,
    snapshot_file,
    write_snapshot,
)
from segconf.config.loading import load_config
from segconf.config.schema import TrainingConfig
from segconf.errors import CheckpointError, ConfigError
from segconf.methods.method import method_of, methods


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ({"method": "softmax", "epochs": 10}, ()),
        ({"method": "aes", "epochs": 4}, (1, 2, 3, 4)),
        ({"method": "aes", "epochs": 60}, tuple(range(2, 61, 2))),
        ({"method": "softmax", "epochs": 10, "snapshots": 3}, (4, 7, 10)),
        ({"method": "crl", "epochs": 10, "snapshots": 2, "snapshot_start": 4}, (7, 10)),
        ({"method": "consistency", "epochs": 7, "snapshots": 1}, (7,)),
    ],
)
def test_epochs_are_evenly_spread_and_include_the_last(settings, epochs):
    training = TrainingConfig(**settings)
    assert methods.get(training.method).snapshot_epochs(training) == epochs


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"epochs": 10, "snapshots": 11}, "11 do not fit into the 10 epochs"),
        ({"epochs": 10, "snapshots": 5, "snapshot_start": 6}, "5 do not fit into the 4 epochs"),
        ({"epochs": 10, "method": "aes", "snapshot_start": 10}, "snapshot_start leave room"),
        ({"method": "aes", "snapshots": 0}, "training.snapshots = 0: .* needs at least one"),
    ],
)
def test_impossible_schedules_are_refused(flags, named):
    with pytest.raises(ConfigError, match=named):
        checked({f"training.{key}": value for key, value in flags.items()})


def checked(flags):
    """The configuration of a run that its method can work with."""
    config = load_config(flags=flags)
    method_of(config).check(config)
    return config


def weights():
    return {
        "kernel": torch.tensor([[1 / 3, -2.0], [1e-3, 5.0]]),
        "huge": torch.tensor([[1e6, 1.0]]),
        "norm.running_var": torch.tensor([1 / 3, 1e5]),
        "norm.num_batches_tracked": torch.tensor(70_001),
    }


def test_half_precision_is_for_kernels_whose_values_fit(tmp_path):
    file = snapshot_file(tmp_path, 12)
    write_snapshot(file, weights(), "float16")
    assert file == tmp_path / "snapshots/epoch-0012.safetensors"
    stored = load_file(file)
    assert {name: value.dtype for name, value in stored.items()} == {
        "kernel": torch.float16,
        "huge": torch.float32,
        "norm.running_var": torch.float32,
        "norm.num_batches_tracked": torch.int64,
    }
    # Half precision has 11 significant bits: 1/3 = 0.333251953125, between 2^-2 and 2^-1.
    assert stored["kernel"][0].tolist() == [0.333251953125, -2.0]
    assert stored["norm.num_batches_tracked"] == 70_001
    for name in ("huge", "norm.running_var"):
        assert torch.equal(stored[name], weights()[name])


def test_single_precision_is_exact(tmp_path):
    write_snapshot(tmp_path / "snapshots/one.safetensors", weights(), "float32")
    stored = read_weights(tmp_path / "snapshots/one.safetensors")
    assert all(torch.equal(stored[name], value) for name, value in weights().items())


def test_the_future_of_a_run_that_fell_back_is_removed(tmp_path):
    for epoch in (2, 4, 6, 10_000):
        write_snapshot(snapshot_file(tmp_path, epoch), weights(), "float16")
    (tmp_path / "snapshots/.epoch-0008.safetensors.1.part").touch()
    remove_later(tmp_path, 4)
    assert list(kept_snapshots(tmp_path)) == [2, 4]
    assert len(list((tmp_path / "snapshots").iterdir())) == 2


def test_space_on_the_disk():
    training = TrainingConfig(method="aes", epochs=200)
    count = len(methods.get("aes").snapshot_epochs(training))
    assert snapshot_bytes(1000, count, training.snapshot_precision) == 15_000
    assert snapshot_bytes(1000, count, "float32") == 30_000


class Tiny(nn.Module):
    """A kernel in single precision and a counter."""

    def __init__(self, shape):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(shape))
        self.register_buffer("seen", torch.tensor(0))


def test_a_network_takes_the_weights_of_a_file(tmp_path):
    file = snapshot_file(tmp_path, 1)
    write_snapshot(file, {"kernel": torch.tensor([[0.1, 2]]), "seen": torch.tensor(9)}, "float16")
    network = Tiny((1, 2))
    load_into(network, file)
    assert network.kernel.dtype == torch.float32
    assert network.kernel.tolist() == [[0.0999755859375, 2.0]]  # 0.1 in half precision
    assert network.seen == 9


def test_weights_of_another_network_are_refused(tmp_path):
    file = snapshot_file(tmp_path, 1)
    write_snapshot(file, Tiny((1, 2)).state_dict(), "float16")
    with pytest.raises(CheckpointError, match="not the weights of the network"):
        load_into(Tiny((2, 1)), file)
    file.write_text("no weights")
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load_into(Tiny((1, 2)), file)
