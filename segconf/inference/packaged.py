"""What a packaged network says about itself: the metadata of its file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from segconf.calibration.stored import Calibration
from segconf.config.ranges import Count, Number, Probability, Section, Temperature
from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError


class PackagedDetector(Section):
    """When an image is out of distribution; the score itself is an output of the network."""

    threshold: Number
    false_alarm_rate: Probability
    validation_images: Count
    grid: tuple[Count, Count]
    band: tuple[Count, Count]


class Packaged(Section):
    """Metadata of a packaged network: everything beside the graph that a prediction needs.

    Every field is an entry of the file's metadata; those that are not text are JSON.
    """

    format: Literal["segconf onnx 1"] = "segconf onnx 1"
    notice: str = "Research use only: not a medical device."
    weights_sha256: str
    config: ExperimentConfig
    temperature: Temperature
    """Of the calibrator that the graph has inside; 1 for one without a temperature."""
    scaling: str = "temperature"
    """Kind of that calibrator."""
    calibration: Calibration
    confidence_threshold: Probability
    """Confidence below which pixels are shaded: wrong more often than the calibration allows."""
    detector: PackagedDetector | None
    class_names: tuple[str, ...]
    licence: str
    model_card: str

    def metadata(self) -> dict[str, str]:
        """Entries for the file."""
        values = self.model_dump(mode="json")
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in values.items()
        }

    @classmethod
    def read(cls, metadata: Mapping[str, str], path: Path) -> "Packaged":
        """From the entries of a file.

        Raises:
            CheckpointError: they are not those that `segconf package` writes.
        """
        try:
            values = {
                name: text if cls.model_fields[name].annotation is str else _value(text)
                for name, text in metadata.items()
                if name in cls.model_fields
            }
            return cls.model_validate(values)
        except ValueError as error:
            raise CheckpointError(
                f"{path}: was not written by this version of segconf (its metadata cannot be "
                "read). Make it again with: segconf package RUN --format onnx"
            ) from error


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
