"""Figures: the only package that imports matplotlib."""

from segconf.plots.curves import comparison_plot, reliability_diagram, risk_coverage_plot
from segconf.plots.history import history_picture
from segconf.plots.surrogates import surrogate_curves
from segconf.plots.training import training_curves

__all__ = [
    "comparison_plot",
    "history_picture",
    "reliability_diagram",
    "risk_coverage_plot",
    "surrogate_curves",
    "training_curves",
]
