"""What the network predicted for every training pixel, epoch after epoch, in uint8."""

from segconf.history.predictions import PredictionHistory

__all__ = ["PredictionHistory"]
