"""What the model said about each training pixel, epoch after epoch, in uint8."""

from segconf.history.generations import committed_epochs
from segconf.history.predictions import IGNORE, PredictionHistory

__all__ = ["IGNORE", "PredictionHistory", "committed_epochs"]
