"""Numbers that judge masks and confidence maps, from streams of any length."""

from segconf.metrics.bootstrap import bootstrap_differences, bootstrap_metrics
from segconf.metrics.calibration import ReliabilityCurve
from segconf.metrics.curves import RiskCoverageCurve, RiskThreshold
from segconf.metrics.overlap import class_iou, dice, iou
from segconf.metrics.streaming import ConfidenceMetrics, Protocol
from segconf.metrics.summary import ImageSummary

__all__ = [
    "ConfidenceMetrics",
    "ImageSummary",
    "Protocol",
    "ReliabilityCurve",
    "RiskCoverageCurve",
    "RiskThreshold",
    "bootstrap_differences",
    "bootstrap_metrics",
    "class_iou",
    "dice",
    "iou",
]
