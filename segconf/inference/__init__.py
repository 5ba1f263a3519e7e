"""A mask and a confidence map for new images, on the grid of their files."""

from segconf.inference.model import Model, Prediction, load_model, native_logits
from segconf.inference.options import PredictOptions
from segconf.inference.prediction import PredictionReport, newest_run, predict
from segconf.inference.sources import Part, Source, Sources, find_images

__all__ = [
    "Model",
    "Part",
    "PredictOptions",
    "Prediction",
    "PredictionReport",
    "Source",
    "Sources",
    "find_images",
    "load_model",
    "native_logits",
    "newest_run",
    "predict",
]
