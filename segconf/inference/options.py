"""What a prediction job may choose; everything else comes with the model."""

from dataclasses import dataclass

from segconf.overlays import Style


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """Options of a job.

    Attributes:
        tile: slide the network over the image at its native resolution.
        style: of the overlays.
        save_probabilities: keep those of all classes.
        skip_existing: leave images alone that have complete results.
        workers: threads that decode and encode; as many as processors by default.
    """

    tile: bool = False
    style: Style = "contour"
    save_probabilities: bool = False
    skip_existing: bool = False
    workers: int | None = None
