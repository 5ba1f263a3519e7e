"""A run folder: everything needed to understand, repeat and continue a training."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from segconf import __version__
from segconf.config.loading import load_config, save_config
from segconf.config.records import read_json, read_record
from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError, ConfigError, FileError, SegconfError, TrainingError
from segconf.files import make_folder, remove_leftovers, write_text
from segconf.locks import LOCK
from segconf.runs.epochs import epoch_tables, read_progress
from segconf.runs.run_data import ROLES, RunData, StoredSplit

if TYPE_CHECKING:
    import torch

MEMBERS = "members"


PACKAGES = ("torch", "segmentation-models-pytorch", "albumentations", "monai", "numpy", "pillow")


_NAMED = 3
"""Runs that an advice names."""


class RunFolder:
    """The files of a run by name."""

    def __init__(self, path: Path) -> None:
        """Nothing is read or written yet."""
        self.path = path
        self.config_file = path / "config.yaml"
        self.split_file = path / "split.json"
        self.environment_file = path / "environment.json"
        self.epochs_file = path / "epochs.csv"
        self.timing_file = path / "timing.csv"
        self.state_file = path / "last.ckpt"
        self.previous_state_file = path / "last.previous.ckpt"
        self.best_file = path / "best.safetensors"
        self.detector_file = path / "ood.safetensors"
        self.history = path / "history"
        self.events = path / "events"

    def check_new(self) -> None:
        """Refuse a folder that holds anything, or that cannot be written to, before any work."""
        if self.path.is_dir() and any(path.name != LOCK for path in self.path.iterdir()):
            raise TrainingError(
                f"{self.path}: already holds a run or other files. Choose another folder, "
                f"or continue that run with: segconf train --resume {self.path}"
            )
        existing = existing_parent(self.path)
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise TrainingError(_unwritable(self.path, f"{existing} is not a writable folder"))

    def create(self, config: ExperimentConfig, data: RunData, device: torch.device) -> None:
        """Make the folder of a new run; one that holds anything is refused."""
        self.check_new()
        try:
            make_folder(self.path)
            save_config(config, self.config_file)
            write_text(self.split_file, json.dumps(_split_values(data), indent=1))
            write_text(self.environment_file, json.dumps(_environment(device), indent=1))
        except FileError as error:
            raise TrainingError(_unwritable(self.path, error.reason)) from error

    def extend(self, config: ExperimentConfig) -> None:
        """Prepare for continuing: note when the run now ends, clear what a crash left behind."""
        before, now = self.config().training, config.training
        if (now.epochs, now.patience) != (before.epochs, before.patience):
            save_config(config, self.config_file)
        remove_leftovers(self.path, age=0)

    def config(self) -> ExperimentConfig:
        """Configuration of the run.

        Raises:
            ConfigError: with every mistake, and with the version that wrote it if it is another.
        """
        self._check()
        try:
            return load_config(self.config_file)
        except ConfigError as error:
            version = self._version()
            if version == __version__:
                raise
            raise ConfigError(
                f"{error}\nThis run was made by segconf {version}, and this is {__version__}: use "
                "that version, or train again."
            ) from error

    def _version(self) -> str:
        """Version of segconf that made the run, as far as it is known."""
        try:
            return str(read_json(self.environment_file)["segconf"])
        except (OSError, ValueError, KeyError, TypeError):
            return "of an unknown version"

    def data(self) -> RunData:
        """Data of the run."""
        self._check()
        way_out = "Put the file of the run back, or start a new run."
        found = read_record(self.split_file, StoredSplit, error=TrainingError, way_out=way_out)
        try:
            found.check()
        except ValueError as error:
            raise TrainingError(f"{self.split_file}: {error}. {way_out}") from None
        data = RunData(
            found.dataset,
            found.data,
            {role: getattr(found, role) for role in ROLES},
            found.unit,
            found.labels,
            found.pixels or {},
            found.accepted or {},
            found.corrected or {},
        )
        if found.ids_sha256 is not None and found.ids_sha256 != _ids_hash(data):
            # The order of the ids is that of the history: with other ids it is of other images.
            raise TrainingError(
                f"{self.split_file}: the ids were changed after the run began. {way_out}"
            )
        return data

    def members(self, count: int) -> tuple[RunFolder, ...]:
        """Runs of the networks of an ensemble, each complete in itself."""
        return tuple(RunFolder(self.path / MEMBERS / str(number)) for number in range(count))

    def has_begun(self) -> bool:
        """Whether there is a run to continue; what a crash left of an earlier start is removed."""
        written = (self.config_file, self.split_file, self.environment_file)
        if all(file.is_file() for file in written):
            return True
        for file in written:
            file.unlink(missing_ok=True)
        remove_leftovers(self.path, age=0)
        return False

    def has_checkpoint(self) -> bool:
        """Whether an epoch was written from which the run can continue."""
        written = (self.state_file, self.previous_state_file, self.epochs_file)
        return any(file.exists() for file in written)

    def _check(self) -> None:
        missing = [file.name for file in (self.config_file, self.split_file) if not file.is_file()]
        if missing:
            raise TrainingError(
                f"{self.path}: not a run folder ({', '.join(missing)} missing). "
                + way_to_a_run(
                    self.path, "Give the folder that `segconf train` wrote, such as runs/NAME."
                )
            )


def way_to_a_run(folder: Path, otherwise: str) -> str:
    """The way out for a path that is no run: the runs that lie in it, or else something other."""
    found = (RunFolder(file.parent) for file in folder.glob("*/config.yaml"))
    inside = sorted(run.path for run in found if run.split_file.is_file())
    if not inside:
        return otherwise
    more = f" and {len(inside) - _NAMED} more" if len(inside) > _NAMED else ""
    return f"Give a run in it: {', '.join(map(str, inside[:_NAMED]))}{more}."


def _split_values(data: RunData) -> dict[str, object]:
    """The content of `split.json`."""
    reviewed = {"accepted": data.accepted, "corrected": data.corrected}
    marked = {kind: masks for kind, masks in reviewed.items() if masks}
    counts = {kind: len(masks) for kind, masks in reviewed.items()}
    return {
        "dataset": data.dataset,
        "data": data.data,
        "unit": data.unit,
        "labels": data.label_count,
        "reviewed": counts,
        **data.ids,
        **marked,
        "pixels": data.pixels,
        "ids_sha256": _ids_hash(data),
    }


def _ids_hash(data: RunData) -> str:
    """SHA-256 of the roles of all images."""
    corrected = [data.corrected] if data.corrected else []
    content = json.dumps([data.ids, data.accepted, *corrected], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def existing_parent(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _unwritable(path: Path, reason: str) -> str:
    return (
        f"{path}: cannot be written ({reason}). Choose a folder that you may write to and that "
        "has space."
    )


def new_run_path(parent: Path, config: ExperimentConfig, dataset: str) -> Path:
    """A folder name that says what the run is; numbered when it was run before."""
    listed = config.data.labeled_list or config.data.labels_from_query
    labeled = config.data.labeled or (listed and listed.stem)
    parts = [Path(dataset).absolute().name, config.training.method, str(labeled or "all")]
    name = "-".join([*parts, f"seed{config.training.seed}"])
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def _environment(device: torch.device) -> dict[str, object]:
    import torch  # here, so that a packaged model is found and used without it

    return {
        "segconf": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def newest_run(parent: Path = Path("runs")) -> Path:
    """The run folder whose training finished last.

    Raises:
        CheckpointError: there is none.
    """
    finished = [path for path in parent.glob("*") if _is_finished(path)]
    if not finished:
        raise CheckpointError(
            f"{parent.absolute()}: no finished run here. Train one with `segconf train`, or name "
            "a run folder or a weights file."
        )
    return max(finished, key=lambda run: max(f.stat().st_mtime_ns for f in epoch_tables(run)))


def _is_finished(run: Path) -> bool:
    config = run / "config.yaml"
    if not config.is_file() or not (run / "best.safetensors").is_file():
        return False
    try:
        training, progress = load_config(config).training, read_progress(run)
    except SegconfError:
        return False
    return bool(progress) and all(one.is_finished(training) for one in progress)
