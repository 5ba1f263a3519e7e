"""Medical image segmentation with a calibrated confidence map."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segconf.calibration.calibrate import calibrate as calibrate
    from segconf.config.loading import load_config as load_config
    from segconf.evaluation.evaluate import evaluate as evaluate
    from segconf.history.predictions import PredictionHistory as PredictionHistory
    from segconf.inference.model import load_model as load_model
    from segconf.inference.predict import predict as predict
    from segconf.losses.ranking import ranking_loss as ranking_loss
    from segconf.metrics.streaming import ConfidenceMetrics as ConfidenceMetrics
    from segconf.training.train import train as train

__version__ = "0.2.0"

_HOMES = {
    "ConfidenceMetrics": "segconf.metrics.streaming",
    "PredictionHistory": "segconf.history.predictions",
    "calibrate": "segconf.calibration.calibrate",
    "evaluate": "segconf.evaluation.evaluate",
    "load_config": "segconf.config.loading",
    "load_model": "segconf.inference.model",
    "predict": "segconf.inference.predict",
    "ranking_loss": "segconf.losses.ranking",
    "train": "segconf.training.train",
}
"""Where each name of the Python API is defined."""

__all__ = [  # noqa: PLE0604 - the names are the keys above
    *_HOMES,
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a name of the API when it is asked for, so that `import segconf` stays instant."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'segconf' has no attribute {name!r}")
