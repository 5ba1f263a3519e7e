"""Devices that are there and those that are not; processors where nothing says how many."""

import os

import pytest
import torch
from torch.utils.data import Dataset

from segconf.data.training_set import build_loader
from segconf.devices import resolve_device, usable_processors
from segconf.errors import ConfigError
from segconf.inference.onnx_model import _providers


class Numbers(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


def test_macos_and_windows_do_not_know_the_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_processors() == os.cpu_count()


def test_no_more_workers_than_processors(monkeypatch):
    """PyTorch warns of more, and warnings are errors here."""
    monkeypatch.setattr("segconf.data.training_set.usable_processors", lambda: 1)
    assert build_loader(Numbers(), workers=2).num_workers == 1
    assert build_loader(Numbers(), workers=0).num_workers == 0


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


@pytest.mark.usefixtures("two_gpus")
def test_a_device_is_one_that_is_there(monkeypatch):
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda")
    with pytest.raises(ConfigError, match=r"device cuda:2: there are 2 .* Give cuda:1 or less"):
        resolve_device("cuda:2")
    for name in ("xpu", "meta", "gpu", "cuda:x"):
        with pytest.raises(ConfigError, match=f"device {name}: unknown"):
            resolve_device(name)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="device cuda:2: there are 2"):
        resolve_device("cuda")


def test_a_packaged_network_computes_on_the_device_of_that_number(monkeypatch):
    cpu, cuda = "CPUExecutionProvider", "CUDAExecutionProvider"
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [cuda, cpu])
    assert _providers("cuda:1") == [(cuda, {"device_id": 1}), cpu]
    assert _providers("cuda") == _providers("auto") == [(cuda, {}), cpu]
    assert _providers("cpu") == [cpu]
    for name in ("xpu", "cuda:x", "cuda1"):
        with pytest.raises(ConfigError, match=f"device {name}: unknown"):
            _providers(name)
    with pytest.raises(ConfigError, match="computes on the CPU only"):
        _providers("mps")
