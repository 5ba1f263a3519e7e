"""`run.json`: which model and which options made a prediction folder."""

import hashlib
import importlib.metadata
import json
from typing import Any

from segconf import __version__
from segconf.errors import DataError
from segconf.inference.model import Model
from segconf.inference.pipeline import PredictOptions
from segconf.inference.sources import Sources
from segconf.overlays.overlay import NOTICE
from segconf.results.prediction_folder import PredictionFolder, RunRecord

PACKAGES = ("torch", "segmentation-models-pytorch", "monai", "numpy", "pillow", "nibabel")


_SAME = ("model", "confidence", "out_of_distribution", "reading", "options", "images")


def describe_run(model: Model, sources: Sources, options: PredictOptions) -> RunRecord:
    """The record of a job; the same for all of its parts."""
    config, scale, detector = model.config, model.scale, model.detector
    threshold = model.calibration.threshold
    values: dict[str, Any] = {
        "notice": NOTICE,
        "segconf": __version__,
        "model": {
            "file": str(model.checkpoint.path.absolute()),
            "sha256": model.sha256(),
            "method": config.training.method,
            "passes": model.predictor.count,
            "encoder": config.model.encoder,
            "size": list(config.data.size),
        },
        "confidence": {
            "temperature": model.temperature,
            "threshold": scale.threshold,
            "upper": scale.upper,
            "max_risk": None if threshold is None else threshold.max_risk,
            "right_below": scale.right_below,
            "classes": scale.classes,
        },
        "order": model.calibration.order,
        "out_of_distribution": None
        if detector is None
        else {
            "threshold": detector.threshold,
            "false_alarm_rate": detector.false_alarm_rate,
            "validation_images": detector.validation_images,
        },
        "images": str(sources.root),
        "reading": {
            "channels": config.model.channels,
            "max_pixels": config.data.max_pixels,
            "window": config.data.intensity_window,
        },
        "options": {
            "tile": options.tile,
            "style": options.style,
            "save_probabilities": options.save_probabilities,
        },
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }
    values = json.loads(json.dumps(values))  # as it will be read again
    names = [[source.file, source.path.stat().st_size] for source in sources.items]
    made_of = json.dumps([{name: values[name] for name in _SAME}, names], sort_keys=True)
    return RunRecord({"id": hashlib.sha256(made_of.encode()).hexdigest()[:16], **values})


def claim(folder: PredictionFolder, record: RunRecord) -> RunRecord:
    """Write `run.json`, or agree with the one that is there and keep its id.

    Raises:
        DataError: the folder holds the predictions of another model, or of other options.
    """
    if folder.run_file.exists():
        before = folder.record()
        different = [name for name in _SAME if before.values.get(name) != record.values[name]]
        if different:
            raise DataError(
                f"{folder.path}: holds predictions made in another way ({', '.join(different)} in "
                "run.json differ). Choose another folder, or remove this one."
            )
        return before
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        there = [path.name for path in folder.path.iterdir() if not path.name.startswith(".")]
        strange = sorted(set(there) - {folder.run_file.name})
        if strange:
            raise DataError(
                f"{folder.path}: holds other files ({', '.join(strange[:3])}). "
                "Choose a new or empty folder."
            )
        folder.write_record(record)
    except OSError as error:
        raise DataError(
            f"{folder.path}: cannot be written ({error.strerror}). "
            "Choose a folder that you may write to."
        ) from error
    return record
