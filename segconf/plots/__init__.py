"""Figures: the only package that imports matplotlib."""

from segconf.plots.curves import comparison_plot, reliability_diagram, risk_coverage_plot
from segconf.plots.history import history_picture
from segconf.plots.training import training_curves
from segconf.plots.triage import stranger_plot, triage_plot

__all__ = [
    "comparison_plot",
    "history_picture",
    "reliability_diagram",
    "risk_coverage_plot",
    "stranger_plot",
    "training_curves",
    "triage_plot",
]
