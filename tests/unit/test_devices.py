"""Processors on systems that do not say which of them a process may use, and on one alone."""

import os

from torch.utils.data import Dataset

from segconf.data.training_set import build_loader
from segconf.devices import usable_processors


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
