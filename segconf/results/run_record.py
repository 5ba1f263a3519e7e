"""`run.json` of a prediction folder: what is read back, and how."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from segconf.calibration.stored import DEFAULT_ORDER
from segconf.config.ranges import (
    Count,
    Flag,
    Interval,
    NaturalNumber,
    OpenSection,
    Probability,
    Section,
)
from segconf.errors import DataError
from segconf.overlays.layers import Contour, Scale, Step
from segconf.overlays.overlay import Style


class StoredModel(OpenSection):
    """The weights that predicted the folder."""

    sha256: str
    classes: tuple[str, ...] = ()
    """Names of the classes of a classifier; none where masks are predicted."""


class StoredStep(Section):
    """Pixels below this confidence are wrong more than 1 time in `times`."""

    times: Count
    confidence: Probability


class StoredScale(Section):
    """Error rates at which pixels are shaded."""

    steps: Annotated[tuple[StoredStep, ...], Field(min_length=1)]
    striped_times: Count
    shaded_times: Count
    classes: Annotated[Count, Field(ge=2, le=256)] = 2
    measured: Flag = True


class StoredConfidence(OpenSection):
    """How confidence is shown."""

    scale: StoredScale | None = None


class StoredContour(OpenSection):
    """A line that keeps a promise."""

    kind: Literal["outer", "inner"]
    class_index: NaturalNumber = Field(alias="class")
    alpha: Probability
    threshold: Probability


class StoredReading(OpenSection):
    """How the images were read."""

    channels: Annotated[Count, Field(le=1000)]
    max_pixels: Count
    window: Interval | None


class StoredOptions(OpenSection):
    """What was asked for."""

    style: Style


class StoredChoice(OpenSection):
    """How the model is called, and why it was taken."""

    model: str
    reason: str


class StoredRun(OpenSection):
    """What is read back from `run.json`; the rest is for people."""

    id: str
    model: StoredModel
    confidence: StoredConfidence
    contours: tuple[StoredContour, ...] = ()
    reading: StoredReading
    options: StoredOptions
    images: str
    order: str = DEFAULT_ORDER
    chosen: StoredChoice | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """`run.json`: everything that decides what is in the folder."""

    values: dict[str, Any]

    @property
    def id(self) -> str:
        """Name under which a browser keeps the decisions."""
        return str(self.values["id"])

    @property
    def class_names(self) -> tuple[str, ...]:
        """Of a classifier, in the order of their numbers; none where masks were predicted."""
        return tuple(self.values["model"].get("classes", ()))

    @property
    def scale(self) -> Scale:
        """Which pixels are shaded, and the lines that keep a promise."""
        stored = self.values["confidence"].get("scale")
        if stored is None:
            raise DataError(
                "run.json: written by an earlier version, which shaded pixels in another way. "
                "Predict again into a new folder."
            )
        steps = tuple(Step(**step) for step in stored["steps"])
        if not {stored["striped_times"], stored["shaded_times"]} <= {step.times for step in steps}:
            raise DataError(
                "run.json: confidence.scale shades at a step that it does not have. Predict again "
                "into a new folder."
            )
        return Scale(**{**stored, "steps": steps, "contours": self.contours})

    @property
    def contours(self) -> tuple[Contour, ...]:
        """Lines that keep a promise; out-of-distribution images have none."""
        return tuple(
            Contour(one["kind"], one["class"], one["alpha"], one["threshold"])
            for one in self.values.get("contours", [])
        )

    @property
    def order(self) -> str:
        """Column of `cases.csv` by which the review page sorts at first, low = look first."""
        return str(self.values.get("order", DEFAULT_ORDER))

    @property
    def model_name(self) -> str:
        """How the model is called, and why it was taken where nobody chose it."""
        chosen = self.values.get("chosen")
        return "" if chosen is None else f"{chosen['model']} ({chosen['reason']})"

    @property
    def images(self) -> Path:
        """Folder that the images were read from."""
        return Path(self.values["images"])

    @property
    def reading(self) -> dict[str, Any]:
        """How the images were read: channels, window, max_pixels."""
        stored: dict[str, Any] = self.values["reading"]
        return stored
