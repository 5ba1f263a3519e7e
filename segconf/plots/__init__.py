"""Figures: the only package that imports matplotlib."""

from segconf.plots.active import LabelCurve, label_curves
from segconf.plots.curves import comparison_plot, reliability_diagram, risk_coverage_plot
from segconf.plots.history import history_picture
from segconf.plots.training import training_curves

__all__ = [
    "LabelCurve",
    "comparison_plot",
    "history_picture",
    "label_curves",
    "reliability_diagram",
    "risk_coverage_plot",
    "training_curves",
]
