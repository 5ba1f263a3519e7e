"""DICOM objects of a prediction, made with highdicom: SEG, Parametric Map, secondary capture."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import highdicom
import numpy as np
from highdicom.sr.coding import CodedConcept
from numpy.typing import NDArray
from pydicom.sr.codedict import codes

from segconf import __version__
from segconf.config.segments import Code, SegmentCode
from segconf.images.types import ByteArray

RESEARCH = "research use only"
_MANUFACTURER = "segconf"
_LONGEST_TEXT = 64
_FIRST_SERIES = 9000
_CONFIDENCE = SegmentCode(
    label="confidence",
    category=Code(value="309825002", meaning="Spatial and Relational Concept"),
    type=Code(value="111012", meaning="Certainty of Finding", scheme="DCM"),
)
_EMPTY_IF_MISSING = (
    *("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID"),
    *("StudyDate", "StudyTime", "ReferringPhysicianName"),
)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What made a prediction.

    Attributes:
        name: of the method and its network.
        weights_sha256: of the weights.
    """

    name: str
    weights_sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """Images that a prediction was made of, in the order of its frames.

    Attributes:
        datasets: one per slice, or one object of several frames.
        is_placed: whether they have a place in a patient, as CT and MR have.
    """

    datasets: Sequence[Any]
    is_placed: bool

    @classmethod
    def of(cls, datasets: Sequence[Any]) -> "Source":
        """Datasets whose missing elements about patient and study are empty ones."""
        for dataset in datasets:
            for name in _EMPTY_IF_MISSING:
                if name not in dataset:
                    setattr(dataset, name, None)
        first = datasets[0]
        return cls(datasets, bool(first.get("FrameOfReferenceUID")))


def mask_object(
    source: Source, mask: ByteArray, segments: Sequence[SegmentCode], algorithm: Algorithm
) -> Any:
    """Binary SEG of class indices (N, H, W): segment k is class k."""
    return _segmentation(source, mask, segments, algorithm, kind="BINARY", title="mask")


def probability_object(
    source: Source,
    probabilities: NDArray[np.float32],
    segments: Sequence[SegmentCode],
    algorithm: Algorithm,
) -> Any:
    """Fractional SEG of the probabilities (N, H, W, K - 1) of the classes beside the background."""
    return _segmentation(
        source, probabilities, segments, algorithm, kind="FRACTIONAL", title="probabilities"
    )


def confidence_object(source: Source, confidence: NDArray[np.float32], algorithm: Algorithm) -> Any:
    """Fractional SEG of the confidence (N, H, W): the probability of the class of the mask."""
    return _segmentation(
        source,
        confidence[..., None],
        [_CONFIDENCE],
        algorithm,
        kind="FRACTIONAL",
        title="confidence",
    )


def confidence_map(source: Source, confidence: NDArray[np.float32], algorithm: Algorithm) -> Any:
    """Parametric Map of the confidence (N, H, W), for images with a place in a patient."""
    no_units = CodedConcept("1", "UCUM", "no units")
    mapping = highdicom.pm.RealWorldValueMapping(
        lut_label="confidence",
        lut_explanation="Probability of the predicted class",
        unit=no_units,
        value_range=(0.0, 1.0),
        slope=1.0,
        intercept=0.0,
        quantity_definition=_concept(_CONFIDENCE.type),
    )
    with _quiet():
        made = highdicom.pm.ParametricMap(
            source_images=source.datasets,
            pixel_array=confidence.astype(np.float32),
            contains_recognizable_visual_features=False,
            real_world_value_mappings=[mapping],
            voi_lut_transformations=[
                highdicom.VOILUTTransformation(window_center=0.5, window_width=1.0)
            ],
            content_label="CONFIDENCE",
            content_description=f"Confidence ({RESEARCH})",
            **_equipment(algorithm, 3),
        )
    return _titled(made, "confidence map", "Laterality")


def overlay_object(source: Source, picture: ByteArray, algorithm: Algorithm) -> Any:
    """Secondary capture of an overlay (h, w, 3), with its annotation marked as burned in."""
    equipment = _equipment(algorithm, 4)
    with _quiet():
        made: Any = highdicom.sc.SCImage.from_ref_dataset(
            ref_dataset=source.datasets[0],
            pixel_array=np.ascontiguousarray(picture),
            photometric_interpretation="RGB",
            bits_allocated=8,
            coordinate_system="PATIENT",
            patient_orientation=("L", "P"),
            series_instance_uid=equipment["series_instance_uid"],
            series_number=equipment["series_number"],
            sop_instance_uid=equipment["sop_instance_uid"],
            instance_number=1,
            manufacturer=_MANUFACTURER,
            transfer_syntax_uid="1.2.840.10008.1.2.1",
        )
    made.PatientOrientation = None  # slices are turned, and pictures have none
    made.BurnedInAnnotation = "YES"
    made.ConversionType = "WSD"
    made.ManufacturerModelName = _MANUFACTURER
    made.SoftwareVersions = list(equipment["software_versions"])
    return _titled(made, "overlay", "Laterality")


def _segmentation(
    source: Source,
    values: NDArray[Any],
    segments: Sequence[SegmentCode],
    algorithm: Algorithm,
    *,
    kind: str,
    title: str,
) -> Any:
    identification = highdicom.AlgorithmIdentificationSequence(
        name=algorithm.name[:_LONGEST_TEXT],
        family=codes.DCM.ArtificialIntelligence,
        version=__version__,
        source=_MANUFACTURER,
        parameters={"weights SHA-256": algorithm.weights_sha256},
    )
    descriptions = [
        highdicom.seg.SegmentDescription(
            segment_number=number,
            segment_label=segment.label[:_LONGEST_TEXT],
            segmented_property_category=_concept(segment.category),
            segmented_property_type=_concept(segment.type),
            algorithm_type="AUTOMATIC",
            algorithm_identification=identification,
        )
        for number, segment in enumerate(segments, start=1)
    ]
    number = {"mask": 0, "probabilities": 1, "confidence": 2}[title]
    with _quiet():
        made = highdicom.seg.Segmentation(
            source_images=source.datasets,
            pixel_array=values,
            segmentation_type=kind,
            segment_descriptions=descriptions,
            omit_empty_frames=kind == "BINARY" and bool(values.any()),
            content_label=title.upper()[:16],
            content_description=f"{title} ({RESEARCH})",
            **_equipment(algorithm, number),
        )
    return _titled(made, title, *(() if source.is_placed else ("PatientOrientation",)))


def _equipment(algorithm: Algorithm, number: int) -> dict[str, Any]:
    """Identifiers of a new object, and what made it."""
    return {
        "series_instance_uid": highdicom.UID(),
        "series_number": _FIRST_SERIES + number,
        "sop_instance_uid": highdicom.UID(),
        "instance_number": 1,
        "manufacturer": _MANUFACTURER,
        "manufacturer_model_name": algorithm.name[:_LONGEST_TEXT],
        "software_versions": (algorithm.weights_sha256, f"segconf {__version__}"),
        "device_serial_number": algorithm.weights_sha256[:16],
    }


def _titled(made: Any, title: str, *unknown: str) -> Any:
    """The object with its description, and empty elements for what is not known."""
    made.SeriesDescription = f"segconf {title} ({RESEARCH})"
    for name in unknown:
        setattr(made, name, None)
    return made


def _concept(code: Code) -> Any:
    return CodedConcept(code.value, code.scheme, code.meaning)


def _quiet() -> Any:
    """Without remarks about values of the source, which are copied as they are."""
    return warnings.catch_warnings(action="ignore")
