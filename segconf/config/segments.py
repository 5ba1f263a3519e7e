"""Codes of the segments of DICOM results: what a class means, in the words of a terminology."""

from collections.abc import Sequence
from pathlib import Path

from segconf.config.ranges import Section
from segconf.config.records import read_record
from segconf.errors import ConfigError


class Code(Section):
    """An entry of a terminology, such as SNOMED CT (`SCT`)."""

    value: str
    meaning: str
    scheme: str = "SCT"


class SegmentCode(Section):
    """What a class shows: a label for people, its category and its type."""

    label: str
    category: Code
    type: Code


class SegmentCodes(Section):
    """Content of a file of segments: one entry per class, the background left out."""

    segments: tuple[SegmentCode, ...]


SKIN_LESION = SegmentCode(
    label="skin lesion",
    category=Code(value="49755003", meaning="Morphologically Altered Structure"),
    type=Code(value="95324001", meaning="Skin lesion"),
)


def default_codes(class_names: Sequence[str]) -> tuple[SegmentCode, ...]:
    """Codes of classes that nobody has coded: anatomical structures under their own names."""
    structure = Code(value="91723000", meaning="Anatomical structure")
    category = Code(value="123037004", meaning="Anatomical Structure")
    return tuple(
        SegmentCode(label=name, category=category, type=structure) for name in class_names[1:]
    )


def read_codes(path: Path, classes: int) -> tuple[SegmentCode, ...]:
    """Codes of the classes 1 to K - 1 from a JSON file.

    Raises:
        ConfigError: it cannot be read, or has another number of segments.
    """
    way_out = (
        'It holds {"segments": [{"label": ..., "category": {"value": ..., "meaning": ...}, '
        '"type": {"value": ..., "meaning": ...}}]}.'
    )
    found = read_record(path, SegmentCodes, error=ConfigError, way_out=way_out).segments
    if len(found) != classes - 1:
        raise ConfigError(
            f"{path}: {len(found)} segments, but the network has {classes - 1} classes beside the "
            "background. Give one entry per class."
        )
    return found
