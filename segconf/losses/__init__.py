"""Losses: ranking of confidence, and the likelihood of noisy logits."""

from segconf.losses.ranking import ranking_loss

__all__ = ["ranking_loss"]
