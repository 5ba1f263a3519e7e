"""The training run."""

from segconf.training.loop import TrainingListener
from segconf.training.run import TrainingResult, train
from segconf.training.summary import EpochSummary, Scores

__all__ = ["EpochSummary", "Scores", "TrainingListener", "TrainingResult", "train"]
