"""Metrics of masks and confidence maps, from streams of any length."""

from segconf.metrics.streaming import ConfidenceMetrics

__all__ = ["ConfidenceMetrics"]
