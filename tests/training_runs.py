"""Runs of a network small enough for tests, and what a run folder holds in comparable form."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

from segconf.config.loading import load_config
from segconf.history.storage import committed_epochs
from segconf.methods import method
from segconf.training.epoch import TrainingListener
from segconf.training.train import train

SETTINGS = {
    "data.size": [32, 32],
    "data.labeled": 4,
    "model.encoder_weights": "none",
    "training.epochs": 4,
    "training.batch_labeled": 2,
    "training.batch_unlabeled": 2,
    "training.learning_rate": 0.03,
    "training.ema_decay": 0.9,
    "training.device": "cpu",
}


class TinyNetwork(nn.Module):
    """Two convolutions with BatchNorm and dropout between them, so that every state matters."""

    def __init__(self, classes=2):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Conv2d(6, classes, 3, padding=1)

    def forward(self, images):
        return self.last(self.dropout(torch.relu(self.norm(self.first(images)))))


def settings(**changes):
    """Configuration of a tiny run; keys are written `section__key`."""
    chosen = {key.replace("__", "."): value for key, value in changes.items()}
    rivals = {"data.labeled_list", "data.labels_from_query"} & chosen.keys()
    defaults = {k: v for k, v in SETTINGS.items() if not rivals or k != "data.labeled"}
    return load_config(flags=defaults | chosen)


def train_tiny(
    dataset, folder, *, resume=False, listener=None, network=TinyNetwork, calibrate=False, **changes
):
    """Train the tiny network instead of a UNet; without a calibration unless asked for."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_network(monkeypatch, network)
        return train(
            settings(**changes),
            dataset=str(dataset),
            folder=folder,
            resume=resume,
            calibrate=calibrate,
            listener=listener,
        )


def use_network(monkeypatch, network=TinyNetwork):
    """Let every method build this network instead of a UNet, for training and for loading.

    Its pretrained weights are a little larger than the random ones.
    """

    def build(*_given, pretrained=True, **_options):
        built = network()
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.mul_(1.001 if pretrained else 1)
        return built

    monkeypatch.setattr(method, "build_network", build)


def contents(folder):
    """Everything a run has computed, by name: weights, state, history, table."""
    folder = Path(folder)
    found = {"epochs.csv": (folder / "epochs.csv").read_text(encoding="utf-8")}
    with safe_open(folder / "best.safetensors", framework="pt") as file:
        found |= {f"best {name}": file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    state = torch.load(folder / "last.ckpt", weights_only=True)
    del state["history"]  # checksums of the arrays below, and of how many epochs were planned
    found |= flattened(state, "last")
    histories = [path.parent for path in folder.glob("history/**/epoch-*.json")]
    for history in sorted(set(histories)):
        epoch = committed_epochs(history)[-1]
        for array in history.glob(f"*-{epoch:04d}.npy"):
            found[str(array.relative_to(folder))] = torch.from_numpy(np.load(array))
    return found


def flattened(value, name):
    """Nested dictionaries and lists as one dictionary."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            key: item
            for number, part in items
            for key, item in flattened(part, f"{name}.{number}").items()
        }
    return {name: value}


def differences(one, other):
    """Names of what is not exactly equal."""
    names = sorted(one.keys() | other.keys())
    return [name for name in names if not _equal(one.get(name), other.get(name))]


def _equal(one, other):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


class Interrupter(TrainingListener):
    """Stops a run in the middle of an epoch, as Ctrl-C does."""

    def __init__(self, epoch, step, error=KeyboardInterrupt):
        self._epoch, self._step, self._error = epoch, step, error

    def on_start(self, folder, epoch, epochs):  # noqa: ARG002
        self._now = epoch

    def on_step(self, step, steps, terms):  # noqa: ARG002
        if (self._now, step) == (self._epoch, self._step):
            raise self._error

    def on_epoch(self, summary):
        self._now = summary.epoch + 1


class Slow(TrainingListener):
    """Gives a killer time to strike."""

    def on_step(self, step, steps, terms):  # noqa: ARG002
        time.sleep(0.02)
