"""What a package says about its network: metadata and model card."""

from segconf.errors import CheckpointError
from segconf.inference.packaged import Packaged, PackagedDetector
from segconf.inference.torch_model import TorchModel
from segconf.models.pretrained import CARD, describe, is_pretrained

NO_LICENCE = "not stated"
_BINARY = 2


def packaged(model: TorchModel) -> Packaged:
    """Metadata of a model."""
    detector = model.detector
    return Packaged(
        weights_sha256=model.weights_sha256,
        config=model.config,
        temperature=model.calibrator.temperature,
        scaling=model.calibrator.kind,
        calibration=model.calibration,
        confidence_threshold=model.scale.shaded,
        detector=None
        if detector is None
        else PackagedDetector(
            threshold=detector.threshold,
            false_alarm_rate=detector.false_alarm_rate,
            validation_images=detector.validation_images,
            grid=detector.grid,
            band=detector.band,
        ),
        class_names=class_names(model),
        licence=licence(model),
        model_card=model_card(model),
    )


def class_names(model: TorchModel) -> tuple[str, ...]:
    """Names of the classes: those of a pretrained model, else by number."""
    folder = model.choice.path
    if is_pretrained(folder):
        return describe(folder.name).class_names
    classes = model.config.model.classes
    if classes == _BINARY:
        return ("background", "foreground")
    return ("background", *(f"class {number}" for number in range(1, classes)))


def licence(model: TorchModel) -> str:
    """Licence of a pretrained model; a run does not have any."""
    folder = model.choice.path
    return describe(folder.name).licence if is_pretrained(folder) else NO_LICENCE


def model_card(model: TorchModel) -> str:
    """The model card beside the weights; without one, what is known about the run."""
    path = model.file.parent / CARD
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error}). Remove the file.") from error
    config, threshold = model.config, model.calibration.threshold
    height, width = config.data.size
    lines = [
        "# Segmentation network with a calibrated confidence map",
        "",
        "Research use only: not a medical device.",
        "",
        f"- UNet with encoder {config.model.encoder}, {config.model.classes} classes, grid of "
        f"{height} x {width} pixels",
        f"- method {config.training.method}, {config.training.epochs} epochs",
        f"- {model.calibrator.describe()}",
        f"- SHA-256 of the weights {model.weights_sha256}",
    ]
    if threshold is None:
        lines.append("- no risk threshold was fitted")
    else:
        lines.append(
            f"- confidence from {threshold.confidence:.4g}: at most {threshold.max_risk:.1%} of "
            f"the pixels were wrong on {threshold.images} validation images"
        )
    return "\n".join(lines) + "\n"
